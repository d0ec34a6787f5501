"""Arrays under other names: what a program reads as an array, and where that is in memory.

`x@g.c` is the array x with its axes g and c as one, g.c; `x@j d` has the axes j and d in the place
of its own; `result.1@` is what the program stores as its result number 1 and reads again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from redlang.ir import walk
from redlang.ir.program import ArrayParam, Axis, Dim, Program, Size
from redlang.ir.types import DType

MARK = "@"
MERGED = "."
"""Stands between the names of the axes that a merged one is made of."""
ROW = 8
"""Elements that rows of a stored operand are multiples of: 16 bytes of 16-bit elements."""


def view_of(name: str, axis: str = "") -> str:
    """Return the name of an array or a view under other axes, or of a result that is read."""
    return f"{name}{MARK}{axis}"


def base_of(name: str) -> str:
    """Return the array or the result that a name is a view of."""
    return name.partition(MARK)[0]


def stored_operands(program: Program) -> dict[str, tuple[Dim, ...]]:
    """Return the dimensions of the results that a program reads itself."""
    read = {base_of(p.name) for p in program.params if isinstance(p, ArrayParam)}
    results = {f"result.{i}": result.dims for i, result in enumerate(program.results)}
    return {name: dims for name, dims in results.items() if name in read}


def element_type(program: Program, name: str) -> DType:
    """Return the element type of an array, a view or a result."""
    results = {f"result.{i}": result.dtype for i, result in enumerate(program.results)}
    return results.get(name) or program.array(name).dtype


def all_extents(program: Program, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the extents of a program's axes, merged ones included."""
    found: dict[str, int] = {}
    for axis in program.axes:
        known = extents.get(axis.name)
        found[axis.name] = prod(found[p] for p in _parts(axis)) if known is None else known
    return found


def all_strides(
    program: Program, strides: Mapping[str, Mapping[str, int]], extents: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the strides of a call's arrays, of stored operands, and of views.

    Args:
        program: The program.
        strides: Those of the call's arrays, by array and axis.
        extents: Those of all axes.
    """
    found = {name: dict(steps) for name, steps in strides.items()}
    for name, dims in stored_operands(program).items():
        found[name], step = {}, 1
        for dim in reversed(dims):
            for axis in reversed(dim.axes):
                found[name][axis] = step
                step *= extents[axis]
            step = -(-step // ROW) * ROW
    arrays = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
    arrays |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
    axes = {axis.name: axis for axis in program.axes}
    every: dict[str, dict[str, int]] = {}
    for name, own in arrays.items():
        seen = name.rpartition(MARK)[0] or name
        known = every.get(seen) or found[seen]
        known = {**_apart(axes, known, extents), **known}
        renamed = seen != name and len(own) == len(arrays[seen])
        steps = arrays[seen] if renamed else [_innermost(axes, axis, known) for axis in own]
        every[name] = {axis: known[step] for axis, step in zip(own, steps, strict=True)}
    return every


def _apart(
    axes: Mapping[str, Axis], known: Mapping[str, int], extents: Mapping[str, int]
) -> dict[str, int]:
    """Return the strides of the axes that merged ones are made of."""
    found: dict[str, int] = {}
    todo = [(name, step) for name, step in known.items() if MERGED in name]
    while todo:
        name, step = todo.pop()
        for part in reversed(_parts(axes[name])):
            found[part] = step
            todo += [(part, step)] if MERGED in part else []
            step *= extents[part]
    return found


def _innermost(axes: Mapping[str, Axis], name: str, known: Mapping[str, int]) -> str:
    """Return the axis whose neighbours are a merged one's."""
    while name not in known:
        name = _parts(axes[name])[-1]
    return name


def _parts(axis: Axis) -> list[str]:
    """Return the axes that a merged axis is made of."""
    assert axis.extent is not None
    assert not isinstance(axis.extent, int)
    return [node.axis for node in walk.nodes(axis.extent) if isinstance(node, Size)]
