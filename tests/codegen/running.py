"""Runs programs through the CPU path, serially: fuse, plan, lower, emit, build, call."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from redlang.algebra.fuse import fuse
from redlang.codegen.arguments import Extent, Stride, row_major, scratch_bytes, unit_count
from redlang.codegen.cpu import emit
from redlang.ir import numerics
from redlang.ir.extents import dim_extent
from redlang.ir.interpret import bind
from redlang.ir.normalise import normalise
from redlang.schedule.choose import choose_plan, segment_count
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.schedule.plan import segment_axis
from redlang.targets import cpu
from redlang.targets.cpu_registers import product_bytes


def lowered(program, inputs, mode="auto"):
    """Return the loops that the chooser picks for these inputs, and the segment counts."""
    normal = normalise(program)
    fused, apart = fuse(normal, mode=mode), fuse(normal, mode="never")
    separate = find_nests(apart.program, apart.sweeps) if apart.program == fused.program else ()
    extents = bind(program, inputs).extents
    nests = find_nests(fused.program, fused.sweeps)
    choice = choose_plan(fused.program, nests, separate, extents)
    segments = {
        segment_axis(plan.segmented): segment_count(plan, extents)
        for plan in choice.plan.nests
        if plan.segmented is not None
    }
    return lower(fused.program, choice.nests, choice.plan), segments


def compiled(program, inputs, mode="auto"):
    """Return a program compiled with the plan that the chooser picks for these inputs."""
    return Compiled(*lowered(program, inputs, mode))


class Compiled:
    """Compiled loops; a call takes inputs by name and returns the results.

    Attributes:
        loops: What is run.
        text: The generated text.
    """

    def __init__(self, loops, segments, unit=None, source=None):
        self.loops = loops
        self.program = loops.program
        self.segments = segments
        layout = row_major(loops) if unit is None else unit
        self.text = emit(loops, layout, source)
        self.module = cpu.load(cpu.build(self.text.text, self.text.entries))

    def prepare(self, inputs, views=None):
        """Return a function that runs all kernels, and the results that it fills.

        `views` are used in place of the inputs' arrays and of new results, strides and all.
        """
        scope = bind(self.program, inputs, "declared")
        extents = {**scope.extents, **self.segments}
        arrays = {**scope.arrays, **(views or {})}
        for i, result in enumerate(self.program.results):
            shape = [extents[axis] for axis in result.axes]
            made = np.zeros(shape, numerics.storage_dtype(result.dtype))
            arrays.setdefault(f"result.{i}", made)
        for space in self.loops.workspaces:
            shape = [extents[axis] for axis in space.axes]
            arrays[space.name] = np.zeros(shape, numerics.storage_dtype(space.dtype))
        arguments = self.text.arguments
        lists = (
            np.array([address(arrays[name]) for name in arguments.addresses], np.uint64),
            np.array([self._int(a, arrays, scope, extents) for a in arguments.ints], np.int64),
            np.array([scope.scalars[name] for name in arguments.floats], np.float64),
        )
        calls = []
        for entry, kernel, buffers in zip(
            self.text.entries, self.loops.kernels, self.text.buffers, strict=True
        ):
            memory = np.empty(scratch_bytes(buffers, product_bytes(), extents) + 64, np.uint8)
            count = unit_count(kernel, extents)
            function: Any = self.module.functions[entry]
            calls.append((function, count, memory))

        def run():
            given = tuple(map(address, lists))
            for function, count, memory in calls:
                function(*given, 0, count, (address(memory) + 63) & -64)
            return arrays

        return run, [arrays[f"result.{i}"] for i in range(len(self.program.results))]

    def _int(self, argument, arrays, scope, extents):
        if isinstance(argument, Extent):
            return extents[argument.axis]
        if isinstance(argument, Stride):
            axes = axes_of(self.program, argument.array)
            view = arrays[argument.array]
            return view.strides[axes.index(argument.axis)] // view.itemsize
        value = int(scope.scalars[argument.name])
        return value - (1 << 64) if value >= 1 << 63 else value

    def __call__(self, inputs, views=None):
        run, results = self.prepare(inputs, views)
        run()
        extents = bind(self.program, inputs, "declared").extents
        return tuple(
            whole(self.program, result, array, extents)
            for result, array in zip(self.program.results, results, strict=True)
        )


def axes_of(program, array):
    """Return the axes of a parameter or of `result.<i>`."""
    if array.startswith("result."):
        return program.results[int(array.removeprefix("result."))].axes
    return program.array(array).axes


def whole(program, result, array, extents):
    """Return a result with the dimensions that its annotation gives it."""
    flat = array.reshape([math.prod(extents[a] for a in dim.axes) for dim in result.dims])
    return flat[tuple(slice(dim_extent(program, dim, extents)) for dim in result.dims)]


def address(array):
    return array.ctypes.data


def retiled(loops, tile):
    """Return loops whose tiles are all `tile`, whatever the plan said."""

    def body(statements):
        done = []
        for statement in statements:
            if hasattr(statement, "body"):
                statement = replace(statement, tile=tile, body=body(statement.body))
            done.append(statement)
        return tuple(done)

    kernels = tuple(
        replace(
            kernel,
            grid=tuple(replace(grid, tile=tile) for grid in kernel.grid),
            body=body(kernel.body),
            segment=kernel.segment and replace(kernel.segment, tile=tile),
        )
        for kernel in loops.kernels
    )
    return replace(loops, kernels=kernels)
