"""How a generated kernel gets its arguments: three lists of numbers, and what stands where in them.

All kernels of one lowered program share the lists: addresses of parameters, results and
workspaces; integers (extents, strides in elements, integer scalars); floats. Strides that the
layout fixes at 1, and those of workspaces, which are row-major, are not passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from redlang.ir.program import ArrayParam, Program, ScalarParam
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.ir.loops import Kernel, Loops

PACKED = "*"
"""A key among unit strides that no array has: all arrays are row-major, without gaps."""

# Strides over literal extents up to this product are numbers in the text: short rows are then read
# by vectors across.
SHORT_ROW = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of an axis, or the number of segments for a segment axis."""

    axis: str


@dataclass(frozen=True, slots=True)
class Stride:
    """Elements between neighbours along `axis` of a parameter or of `result.<i>`."""

    array: str
    axis: str


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer or truth value: a scalar parameter or a captured number."""

    name: str


IntArgument: TypeAlias = Extent | Stride | Whole


@dataclass(frozen=True, slots=True)
class Arguments:
    """What each entry of the three lists is.

    Attributes:
        addresses: Names of parameters, `result.<i>`, workspaces.
        ints, floats: Integer arguments; names of float scalars.
        unit: The axis along which each array has stride 1, None for none.
        known: Strides that are the same in every call.
    """

    addresses: tuple[str, ...]
    ints: tuple[IntArgument, ...]
    floats: tuple[str, ...]
    unit: Mapping[str, str | None]
    known: Mapping[Stride, int] = field(default_factory=dict)


def short_rows(program: Program) -> dict[Stride, int]:
    """Return the strides of row-major arrays over short rows of literal extents."""
    literal = {axis.name: axis.extent for axis in program.axes if isinstance(axis.extent, int)}
    arrays = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
    arrays |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
    found: dict[Stride, int] = {}
    for name, axes in arrays.items():
        row = 1
        for axis, inner in reversed(list(itertools.pairwise(axes))):
            row *= literal.get(inner, SHORT_ROW + 1)
            if row <= SHORT_ROW:
                found[Stride(name, axis)] = row
    return found


def arrange(loops: Loops, unit: Mapping[str, str | None]) -> Arguments:
    """Return the arguments of a lowered program whose arrays have these unit strides."""
    program = loops.program
    arrays = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
    arrays |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
    segments = [k.segment.index for k in loops.kernels if k.segment is not None]
    ints: list[IntArgument] = [
        Extent(axis) for axis in (*(axis.name for axis in program.axes), *segments)
    ]
    ints += [
        Stride(name, axis)
        for name, axes in arrays.items()
        for axis in axes
        if unit.get(name) != axis
    ]
    scalars = [p for p in program.params if isinstance(p, ScalarParam)]
    ints += [Whole(p.name) for p in scalars if p.dtype.kind != "float"]
    spaces = {space.name: space.axes[-1] if space.axes else None for space in loops.workspaces}
    return Arguments(
        (*arrays, *spaces),
        tuple(ints),
        tuple(p.name for p in scalars if p.dtype.kind == "float"),
        {**{name: unit.get(name) for name in arrays}, **spaces},
        short_rows(program) if PACKED in unit else {},
    )


def row_major(loops: Loops) -> dict[str, str | None]:
    """Return the layout of arrays that are all row-major."""
    program = loops.program
    arrays = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
    arrays |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
    return {PACKED: None} | {name: axes[-1] if axes else None for name, axes in arrays.items()}


def unit_count(kernel: Kernel, extents: Mapping[str, int]) -> int:
    """Return how many units a kernel has; `extents` holds segment axes too."""
    tiles = prod(-(-extents[grid.axis] // grid.tile) for grid in kernel.grid)
    return tiles if kernel.segment is None else tiles * extents[kernel.segment.index]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tile in scratch memory: bytes of an element, and its extents or the axes they are of."""

    element: int
    dims: tuple[int | str, ...]


def scratch_bytes(buffers: tuple[Buffer, ...], fixed: int, extents: Mapping[str, int]) -> int:
    """Return the scratch memory that one call needs, `fixed` bytes of other uses included."""
    total = fixed
    for buffer in buffers:
        sizes = (extents[dim] if isinstance(dim, str) else dim for dim in buffer.dims)
        total += (buffer.element * prod(sizes) + 63) & -64
    return total
