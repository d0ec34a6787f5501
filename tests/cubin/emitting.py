"""Lower a kernel's text with a plan, emit CUDA text, run it in the simulator, and judge it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redlang.algebra.fuse import fuse
from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import (
    Address,
    ArrayClass,
    Classes,
    Counters,
    KernelText,
    Number,
)
from redlang.codegen.cuda.merging import emit_segments
from redlang.codegen.cuda.resident import emit
from redlang.frontend.capture import from_text
from redlang.frontend.parser import parse
from redlang.frontend.resolve import Signature, resolve
from redlang.frontend.scope import NamesScope
from redlang.frontend.syntax import Function
from redlang.ir import numerics
from redlang.ir.extents import bind_extents
from redlang.ir.interpret import interpret
from redlang.ir.loops import Loops
from redlang.ir.normalise import normalise
from redlang.ir.program import ArrayParam
from redlang.ir.types import DTYPES
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.schedule.plan import Plan
from redlang.schedule.threads import ThreadPlan
from tests.cubin.simulator import Memory, simulate
from tests.cubin.words import CODES


def program_of(text, dtypes=None, kinds=None, names=None):
    """Return the normalised program of a kernel's text."""
    source = from_text(text)
    signature = Signature({k: DTYPES[v] for k, v in (dtypes or {}).items()}, kinds or {})
    syntax = parse(source)
    assert isinstance(syntax, Function)
    return normalise(resolve(syntax, source, signature, NamesScope((names or {},))))


def lowered(program, nest_plans, mode="auto"):
    """Return the loops of a program under plans for its nests."""
    fusion = fuse(program, mode=mode)
    nests = find_nests(fusion.program, fusion.sweeps)
    return lower(fusion.program, nests, Plan(tuple(nest_plans)))


def dtype_name(array):
    return next(
        name
        for name, dtype in DTYPES.items()
        if numerics.storage_dtype(dtype) == np.asarray(array).dtype
    )


@dataclass
class Run:
    """One run of a lowered program.

    Attributes:
        loops: What runs.
        thread_plans: The threads of each kernel that is launched, in order.
        arrays: Inputs by name.
        scalars: Scalar arguments.
        segments: How many blocks share a unit, where a sweep is cut.
        exact: Axes whose extent the kernels are compiled for.
        offset: Elements by which arrays are moved from their alignment.
        backwards: Whether the last block runs first.
    """

    loops: Loops
    thread_plans: list[ThreadPlan]
    arrays: dict[str, Any]
    scalars: dict[str, Any] = field(default_factory=dict)
    segments: int = 1
    exact: tuple[str, ...] = ()
    offset: int = 0
    backwards: bool = False
    texts: list[KernelText] = field(default_factory=list)

    def __call__(self):
        program = self.loops.program
        shapes = {name: array.shape for name, array in self.arrays.items()}
        self.extents = dict(bind_extents(program, shapes, self.scalars))
        for space in self.loops.workspaces:
            for axis in space.axes:
                if axis.endswith(".segment"):
                    self.extents[axis] = self.segments
        self.memory = Memory()
        self.addresses = {}
        self.strides = {}
        self.dtypes = {}
        for param in program.params:
            if isinstance(param, ArrayParam):
                self._place(param.name, param.axes, self.arrays[param.name], param.dtype)
        for number, result in enumerate(program.results):
            shape = tuple(self.extents[axis] for axis in result.axes)
            empty = np.zeros(shape, numerics.storage_dtype(result.dtype))
            self._place(f"result.{number}", result.axes, empty, result.dtype)
        for space in self.loops.workspaces:
            shape = tuple(self.extents[axis] for axis in space.axes)
            self._place(space.name, space.axes, np.zeros(shape, CODES[space.dtype.name]), None)
        self.counters = self.memory.add(np.zeros(4096, np.uint32))
        kernels = list(self.loops.kernels)
        plans = iter(self.thread_plans)
        while kernels:
            self._launch(kernels, next(plans))
        return tuple(self._read(number) for number in range(len(program.results)))

    def _place(self, name, axes, array, dtype):
        array = np.asarray(array)
        if dtype is not None:
            array = array.astype(numerics.storage_dtype(dtype))
        shape = [self.extents[axis] for axis in axes]
        padded = np.zeros(self.offset + array.size + 1, array.dtype)
        padded[self.offset : self.offset + array.size] = array.reshape(-1)
        start = self.memory.add(padded)
        self.addresses[name] = start + self.offset * array.itemsize
        steps: Any = np.cumprod([1, *reversed(shape)])[:-1][::-1] if shape else []
        self.strides[name] = dict(zip(axes, (int(s) for s in steps), strict=True))
        self.dtypes[name] = array.dtype

    def _classes(self):
        arrays = {}
        for name, strides in self.strides.items():
            size = self.dtypes[name].itemsize
            known = {axis: step for axis, step in strides.items() if step == 1}
            inner = 1
            for axis in reversed(strides):
                if strides[axis] == inner:
                    known[axis] = inner
                if axis not in self.exact:
                    break
                inner *= self.extents[axis]
            rest = [step * size for axis, step in strides.items() if axis not in known]
            alignment = np.gcd.reduce([self.addresses[name], 16, *rest])
            arrays[name] = ArrayClass(known, int(alignment))
        multiples = {
            axis: extent if axis in self.exact else max(1, extent & -extent)
            for axis, extent in self.extents.items()
        }
        return Classes(arrays, multiples, dict(self.extents))

    def _launch(self, kernels, plan):
        kernel = kernels.pop(0)
        classes = self._classes()
        if kernel.kind == "multi-segment":
            merge = kernels.pop(0)
            across = self.segments > 1
            text = emit_segments(self.loops, kernel, merge, plan, classes, across_blocks=across)
        else:
            text = emit(self.loops, kernel, plan, classes)
        self.texts.append(text)
        units = 1
        for axis, tile in text.grid:
            units *= -(-self.extents[axis] // tile)
        blocks = -(-units // text.units) * text.cluster * (self.segments if text.segments else 1)
        self.execute(text, [self._argument(p) for p in text.parameters], blocks)

    def execute(self, text, arguments, blocks):
        """Run one kernel; `tests/gpu` does it on a device instead."""
        simulate(text, arguments, blocks, self.memory, self.order(blocks))

    def order(self, blocks):
        """Return the order in which blocks run; a merge may not depend on it."""
        text = self.texts[-1]
        firsts = list(range(0, blocks, text.cluster))
        # Who takes what others post runs last: it would wait for them.
        takers = blocks // self.segments if text.posted else 0
        others = firsts[: len(firsts) - takers]
        return [*reversed(others), *firsts[len(others) :]] if self.backwards else firsts

    def _argument(self, parameter):
        match parameter:
            case Address(name):
                return np.int64(self.addresses[name])
            case Extent(axis):
                return np.int64(self.extents[axis])
            case Stride(array, axis):
                return np.int64(self.strides[array][axis])
            case Number(name, code):
                return CODES[code](self.scalars[name])
            case Counters():
                return np.int64(self.counters)

    def _read(self, number):
        result = self.loops.program.results[number]
        name = f"result.{number}"
        shape = tuple(self.extents[axis] for axis in result.axes)
        address = self.addresses[name]
        count = int(np.prod(shape)) * self.dtypes[name].itemsize
        written = self.memory.written[address : address + count]
        assert (written == 1).all(), "an element of the result is written not exactly once"
        return self.memory.read(address, shape, self.dtypes[name])


def expected(program, arrays, scalars=None):
    """Return the results that the reference interpreter finds in double precision."""
    return interpret(program, {**arrays, **(scalars or {})}, precision="double")
