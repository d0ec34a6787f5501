"""Runs programs through the whole CPU path, serially: fuse, plan, lower, emit, build, call."""

from __future__ import annotations

import math

import numpy as np

from redlang.algebra.fuse import fuse
from redlang.codegen.arguments import Extent, Stride, scratch_bytes, unit_count
from redlang.codegen.cpu import emit
from redlang.ir import numerics
from redlang.ir.extents import dim_extent
from redlang.ir.interpret import bind
from redlang.ir.normalise import normalise
from redlang.ir.program import ArrayParam
from redlang.schedule.choose import choose_plan, segment_count
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.schedule.plan import segment_axis
from redlang.targets import cpu
from redlang.targets.cpu_registers import product_bytes


class Compiled:
    """A program compiled for the extents of one call."""

    def __init__(self, program, arrays, *, mode="auto", choose=choose_plan):
        self.program = program
        self.scope = bind(program, arrays, "declared")
        fused = fuse(normalise(program), mode=mode)
        nests = find_nests(fused.program, fused.sweeps)
        separate = fuse(fused.program, mode="never")
        choice = choose(
            fused.program,
            nests,
            find_nests(separate.program, separate.sweeps),
            self.scope.extents,
        )
        self.extents = dict(self.scope.extents)
        for plan in choice.plan.nests:
            if plan.segmented is not None:
                self.extents[segment_axis(plan.segmented)] = segment_count(plan, self.extents)
        self.loops = lower(fused.program, choice.nests, choice.plan)
        self.text = emit(self.loops)
        self.module = cpu.load(cpu.build(self.text.text, self.text.entries))

    def prepare(self, arrays=None):
        """Return a function that runs all kernels, and the results that it fills."""
        scope = self.scope if arrays is None else bind(self.program, arrays, "declared")
        views = {name: np.asarray(view) for name, view in scope.arrays.items()}
        results = []
        for i, result in enumerate(self.program.results):
            shape = [self.extents[axis] for axis in result.axes]
            results.append(np.zeros(shape, numerics.storage_dtype(result.dtype)))
            views[f"result.{i}"] = results[-1]
        for space in self.loops.workspaces:
            shape = [self.extents[axis] for axis in space.axes]
            views[space.name] = np.zeros(shape, numerics.storage_dtype(space.dtype))
        arguments = self.text.arguments
        addresses = np.array([address(views[name]) for name in arguments.addresses], np.uint64)
        ints = np.array([self._int(a, views, scope) for a in arguments.ints], np.int64)
        floats = np.array([scope.scalars[name] for name in arguments.floats], np.float64)
        calls = []
        for entry, kernel, buffers in zip(
            self.text.entries, self.loops.kernels, self.text.buffers, strict=True
        ):
            need = scratch_bytes(buffers, product_bytes(), self.extents)
            memory = np.empty(need + 64, np.uint8)
            start = (address(memory) + 63) & -64
            count = unit_count(kernel, self.extents)
            calls.append((self.module.functions[entry], count, start, memory))
        keep = (addresses, ints, floats, views)

        def run():
            given = tuple(address(x) for x in keep[:3])
            for function, count, start, _ in calls:
                function(*given, 0, count, start)

        return run, results

    def _int(self, argument, views, scope):
        if isinstance(argument, Extent):
            return self.extents[argument.axis]
        if isinstance(argument, Stride):
            axes = (
                self.program.array(argument.array).axes
                if not argument.array.startswith("result.")
                else self.program.results[int(argument.array[7:])].axes
            )
            view = views[argument.array]
            return view.strides[axes.index(argument.axis)] // view.itemsize
        value = int(scope.scalars[argument.name])
        return value - (1 << 64) if value >= 1 << 63 else value

    def __call__(self, arrays=None):
        run, results = self.prepare(arrays)
        run()
        return tuple(
            whole(self.program, result, array, self.extents)
            for result, array in zip(self.program.results, results, strict=True)
        )


def whole(program, result, array, extents):
    """Return a result with the dimensions that its annotation gives it."""
    flat = array.reshape([math.prod(extents[a] for a in dim.axes) for dim in result.dims])
    return flat[tuple(slice(dim_extent(program, dim, extents)) for dim in result.dims)]


def address(array):
    return array.ctypes.data


def array_names(program):
    return [p.name for p in program.params if isinstance(p, ArrayParam)]
