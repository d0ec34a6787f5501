"""Run the loop IR with NumPy, unit by unit and tile by tile: any plan, on any machine.

This is how plans for a device that is not there are checked for their values. It reads and writes
exactly what the loops say; what the emitters fuse, keep in registers or vectorise does not show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from redlang.ir import numerics, reduce
from redlang.ir.evaluate import Scope, evaluate, evaluate_full
from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Compute,
    Contract,
    Fold,
    Kernel,
    Loop,
    Loops,
    Segment,
    Statement,
    Store,
)
from redlang.ir.numerics import Array, Precision
from redlang.ir.program import Apply, Expr
from redlang.ir.tiles import Tile, Window, expanded, spread
from redlang.ir.types import F64, DType


def run_loops(
    loops: Loops,
    scope: Scope,
    segments: Mapping[str, int],
) -> tuple[Array, ...]:
    """Run all kernels and return the results, one dimension an axis.

    Args:
        loops: What to run.
        scope: Arrays, scalars and extents of the program, with the precision to compute in.
        segments: The number of segments for each segment axis.
    """
    extents = {**scope.extents, **segments}
    order = (*segments, *(axis for axis in scope.order if axis not in segments))
    memory = _Memory(loops, extents, scope.precision)
    scope = replace(scope, extents=extents, order=order)
    for kernel in loops.kernels:
        for windows in _units(kernel, extents):
            _Unit(kernel, memory, scope.with_windows(windows)).run(kernel.body)
    return tuple(memory.arrays[f"result.{i}"] for i in range(len(loops.results)))


class _Memory:
    """Results and workspaces, poisoned so that an element nobody wrote shows."""

    def __init__(self, loops: Loops, extents: Mapping[str, int], precision: Precision) -> None:
        self.axes: dict[str, tuple[str, ...]] = {}
        self.arrays: dict[str, Array] = {}
        self.stored: dict[str, DType] = {}
        self.spaces = {space.name for space in loops.workspaces}
        for space in loops.workspaces:
            shape = [extents[axis] for axis in space.axes]
            dtype = numerics.work_dtype(space.dtype, precision)
            self._add(space.name, space.axes, np.empty(shape, dtype))
        for number, result in enumerate(loops.results):
            shape = [extents[axis] for axis in result.axes]
            dtype = numerics.storage_dtype(result.dtype)
            if precision == "double" and result.dtype.kind == "float":
                dtype = numerics.storage_dtype(F64)
            self._add(f"result.{number}", result.axes, np.empty(shape, dtype))
            self.stored[f"result.{number}"] = result.dtype

    def _add(self, name: str, axes: tuple[str, ...], array: Array) -> None:
        if array.dtype.kind in "fV":
            array[...] = np.array(np.nan).astype(array.dtype)
        else:
            array[...] = np.array(77).astype(array.dtype)
        self.axes[name], self.arrays[name] = axes, array


def _units(kernel: Kernel, extents: Mapping[str, int]) -> Iterator[dict[str, Window]]:
    ranges = [list(_tiles(0, extents[grid.axis], grid.tile)) for grid in kernel.grid]
    segments = range(extents[kernel.segment.index]) if kernel.segment else (None,)
    for segment in segments:
        for windows in itertools.product(*ranges):
            unit = {grid.axis: window for grid, window in zip(kernel.grid, windows, strict=True)}
            if kernel.segment is not None and segment is not None:
                unit[kernel.segment.index] = (segment, segment + 1)
            yield unit


def _tiles(first: int, stop: int, tile: int) -> Iterator[Window]:
    for start in range(first, stop, tile):
        yield start, min(start + tile, stop)


def segment_range(segment: Segment, number: int, extents: Mapping[str, int]) -> Window:
    """Return the part of the cut axis that one segment covers."""
    extent, parts = extents[segment.axis], extents[segment.index]
    count = -(-extent // segment.tile)
    first, stop = number * count // parts, (number + 1) * count // parts
    return min(first * segment.tile, extent), min(stop * segment.tile, extent)


@dataclass(slots=True)
class _Unit:
    """One unit of a kernel: its values and current ranges."""

    kernel: Kernel
    memory: _Memory
    scope: Scope
    values: dict[str, Tile] | None = None

    def run(self, body: tuple[Statement, ...]) -> None:
        if self.values is None:
            self.values = {}
        for statement in body:
            self.execute(statement)

    def execute(self, statement: Statement) -> None:
        assert self.values is not None
        match statement:
            case Compute(name, value, type_):
                self.values[name] = self.over(value, type_.axes)
            case Fold():
                self.fold(statement)
            case Contract():
                self.contract(statement)
            case Combine(names, op, left, right, types, k, monoid):
                a, b = ([self.values[name] for name in side] for side in (left, right))
                slot = self.slot(types[0].axes) if op == "topk" else reduce.SLOT
                parts = reduce.combine(op, a, b, self.inner(), k=k, slot=slot, monoid=monoid)
                self.values.update(zip(names, parts, strict=True))
            case Commit(pairs):
                new = [self.values[value] for _, value in pairs]
                self.values.update(zip((state for state, _ in pairs), new, strict=True))
            case Store():
                self.store(statement)
            case Loop():
                self.loop(statement)
            case Branch(condition, then, otherwise):
                holds = bool(evaluate(condition, self.inner()).data)
                self.run(then if holds else otherwise)
            case _:
                assert_never(statement)

    def inner(self) -> Scope:
        """Return the scope of an expression: values, workspaces, and the bounds of ranges."""
        assert self.values is not None
        bounds = {
            f"{axis}.{end}": Tile((), np.array(place, np.int64))
            for axis, (first, stop) in self.scope.windows.items()
            for end, place in (("first", first), ("last", stop - 1))
        }
        spaces = {
            name: Tile(self.memory.axes[name], self.memory.arrays[name])
            for name in self.memory.spaces
        }
        return replace(self.scope, values={**spaces, **bounds, **self.values})

    def over(self, value: Expr, axes: tuple[str, ...]) -> Tile:
        """Evaluate over the current ranges of `axes`; other axes are read at their first index."""
        tile = evaluate_full(value, self.inner())
        places = tuple(slice(None) if axis in axes else 0 for axis in tile.axes)
        kept = tuple(axis for axis in tile.axes if axis in axes)
        tile = Tile(kept, tile.data[places])
        wide = expanded(tile, axes, {axis: self.scope.length(axis) for axis in axes})
        return replace(wide, data=np.ascontiguousarray(wide.data).reshape(wide.data.shape))

    def fold(self, step: Fold) -> None:
        assert self.values is not None
        slot = self.slot(step.types[0].axes) if step.op == "topk" else reduce.SLOT
        reduction = reduce.Reduction(
            step.op, step.over, step.values, step.condition, step.k, slot, step.monoid
        )
        parts = reduce.partial(reduction, self.inner())
        self.values.update(zip(step.names, parts, strict=True))

    def slot(self, axes: tuple[str, ...]) -> str:
        """Return the axis of a list of values that counts its slots."""
        ranged = {grid.axis for grid in self.kernel.grid} | set(self.scope.windows)
        return next((axis for axis in reversed(axes) if axis not in ranged), reduce.SLOT)

    def contract(self, step: Contract) -> None:
        assert self.values is not None
        dtype = step.type
        product = Apply("mul", (step.left, step.right), replace(dtype, axes=self.union(step)))
        reduction = reduce.Reduction("sum", step.over, (product,), step.condition)
        (tile,) = reduce.partial(reduction, self.inner())
        if step.accumulate:
            (tile,) = reduce.combine("sum", [self.values[step.name]], [tile], self.inner())
        self.values[step.name] = tile

    def union(self, step: Contract) -> tuple[str, ...]:
        axes = {*step.left.type.axes, *step.right.type.axes}
        return tuple(axis for axis in self.scope.order if axis in axes)

    def store(self, step: Store) -> None:
        tile = self.over(step.value, step.axes)
        target, axes = self.memory.arrays[step.target], self.memory.axes[step.target]
        places = tuple(slice(*self.scope.window(axis)) for axis in axes)
        dtype = self.memory.stored.get(step.target)
        data = spread(tile.data, tile.axes, axes)
        if dtype is not None and not (dtype.kind == "float" and target.dtype == np.float64):
            data = numerics.to_storage(data, dtype)
        target[places] = data

    def loop(self, step: Loop) -> None:
        segment = self.kernel.segment
        first, stop = 0, self.scope.extents[step.axis]
        if step.axis in self.scope.windows:
            first, stop = self.scope.windows[step.axis]
        elif segment is not None and segment.axis == step.axis:
            number = self.scope.windows[segment.index][0]
            first, stop = segment_range(segment, number, self.scope.extents)
        outer = self.scope
        for window in _tiles(first, stop, step.tile):
            self.scope = outer.with_windows({step.axis: window})
            if step.some is None or bool(evaluate(step.some, self.inner()).data):
                self.run(step.body)
        self.scope = outer
