"""What the class of a call guarantees of arrays and extents: what code may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from redlang.codegen.cuda.kernel_text import ArrayClass, Classes, Results
from redlang.ir.program import ArrayParam, Program
from redlang.runtime.cuda_course import Arrays
from redlang.runtime.matrix_calls import matrix_classes
from redlang.schedule.device import Device
from redlang.schedule.facts import Layout
from redlang.schedule.parts import Part
from redlang.schedule.search import LONG_CLASS, ShapeClass

WIDEST = 16
"""Bytes of the widest access."""
SMALL = 1024
"""Elements up to which an array is not worth code of its own."""
SHORT_INDEX = 1 << 16
LONG_INDEX = 1 << 31
"""Bounds on swept extents that generated code may rely on: 16-bit and 31-bit indices."""
STAY, FIT = 1 / 3, 2 / 3
"""Shares of the L2 cache up to which results stay there beside what is read, or fit at all."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the classes of a call guarantee.

    Attributes:
        program: The program whose plans they are for.
        shape, layout: The class.
        extents, arrays: Those of the call.
        device: What it runs on.
        sizes: Bytes of an element of each array.
    """

    program: Program
    shape: ShapeClass
    layout: Layout
    extents: Mapping[str, int]
    arrays: Arrays
    device: Device
    sizes: Mapping[str, int]

    def classes(self, part: Part) -> Classes:
        """Return what every launch of a part guarantees."""
        if part.matrix is not None:
            arrays = self.arrays
            return matrix_classes(part, self.extents, arrays.strides, arrays.addresses, self.sizes)
        return Classes(
            self._arrays(),
            self._multiples(part),
            self._limits(part),
            native_f8=_order(self.device.capability) >= (8, 9),
            results=self._results(),
            filled=frozenset(axis for axis, extent in self.extents.items() if extent),
        )

    def key(self, part: Part) -> tuple[object, ...]:
        """Return the classes as something that has equality and a text."""
        known = self.classes(part)
        arrays = tuple(
            (name, tuple(sorted(a.strides.items())), a.alignment)
            for name, a in known.arrays.items()
        )
        multiples = tuple(sorted(known.multiples.items()))
        limits, pointed = sorted(known.limits.items()), sorted(self.arrays.pointed.items())
        empty = tuple(sorted(set(self.extents) - known.filled))
        return arrays, multiples, tuple(limits), known.native_f8, known.results, empty, *pointed

    def _results(self) -> Results:
        extents = dict(self.shape.extents)
        size = sum(
            prod(extents[axis] for axis in result.axes) * result.dtype.bytes
            for result in self.program.results
        )
        if self.shape.small or size <= STAY * self.device.l2_bytes:
            return "stay"
        return "fit" if size <= FIT * self.device.l2_bytes else "leave"

    def _arrays(self) -> dict[str, ArrayClass]:
        return {
            name: ArrayClass(self._run(name, strides), self.layout.alignment[name])
            for name, strides in self.arrays.strides.items()
        }

    def _run(self, name: str, strides: Mapping[str, int]) -> dict[str, int]:
        """Return the strides that are the same in every call: of axes whose run is unbroken."""
        unit = self.layout.unit[name]
        if unit is None:
            return {}
        known = {unit: 1}
        if unit not in self.shape.exact:
            return known
        inner = self.extents[unit]
        for axis in reversed([a for a in strides if a != unit]):
            if strides[axis] != inner:
                break
            known[axis] = inner
            if axis not in self.shape.exact:
                break
            inner *= self.extents[axis]
        return known

    def _multiples(self, part: Part) -> dict[str, int]:
        multiples = {axis: self.extents[axis] for axis in self.shape.exact}
        classed = dict(self.shape.extents)
        for spread in part.threads.spreads:
            axis = spread.axis
            if axis in multiples or axis not in classed:
                continue
            if self.shape.small and classed[axis] <= LONG_CLASS:
                continue
            extent = self.extents[axis]
            for divisor in (spread.extent, spread.width):
                if divisor > 1 and extent % divisor == 0 and extent > 0:
                    multiples[axis] = divisor
                    break
        return multiples

    def _limits(self, part: Part) -> dict[str, int]:
        limits = dict(part.plan.limits)
        limits |= {axis: self.extents[axis] for axis in self.shape.exact}
        tiles = dict(part.plan.tiles)
        for axis, extent in self.shape.extents:
            if axis in limits:
                continue
            if axis in tiles and extent <= tiles[axis]:
                limits[axis] = tiles[axis]
            elif extent <= SHORT_INDEX:
                limits[axis] = SHORT_INDEX
            elif extent <= LONG_INDEX:
                limits[axis] = LONG_INDEX
        return limits


def _order(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


def element_sizes(program: Program) -> dict[str, int]:
    """Return the bytes of an element of each array."""
    sizes = {p.name: p.dtype.bytes for p in program.params if isinstance(p, ArrayParam)}
    return sizes | {f"result.{i}": r.dtype.bytes for i, r in enumerate(program.results)}


def alignment_of(
    size: int,
    strides: Mapping[str, int],
    address: int,
    unit: str | None,
    extents: Mapping[str, int],
    shape: ShapeClass,
) -> int:
    """Return the bytes that divide an array's address and its strides but that of `unit`."""
    steps = [s * size for a, s in strides.items() if a != unit and extents[a] > 1]
    # A run over inner axes that a thread holds whole goes on where the next axis begins.
    if unit in shape.exact and extents[unit] <= WIDEST:
        steps = [s for s in steps if s != extents[unit] * size]
    return gcd(WIDEST, address, *steps)


def unit_axis(strides: Mapping[str, int], extents: Mapping[str, int]) -> str | None:
    """Return the axis along which neighbours are adjacent; the last one where there is a choice."""
    # A small array is not worth code of its own where the last axis has one element.
    small = prod(extents[a] for a in strides) <= SMALL
    fitting = [a for a, step in strides.items() if step == 1 and (small or extents[a] > 1)]
    if fitting:
        return fitting[-1]
    alone = [a for a, step in strides.items() if extents[a] == 1]
    return alone[-1] if alone and all(extents[a] == 1 for a in strides) else None
