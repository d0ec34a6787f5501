"""Compiled kernels on the CPU: plans by extents, code by plan, calls through C.

A launcher knows the extents of its call and asks for the *run* that fits them. Runs of the same
plan share machine code, which is found in memory, on disk, or made. What depends on extents alone
(how many units, how much scratch, how many segments) is worked out once for each set of extents.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from redlang.codegen.arguments import PACKED, Arguments, Buffer, Stride, short_rows
from redlang.ir import walk
from redlang.ir.program import ArrayParam, Index, Load, Program
from redlang.runtime.call import UnitAxes
from redlang.runtime.launcher import Launch, Stored
from redlang.runtime.threads import pool
from redlang.runtime.tuning import Run, on_trial
from redlang.targets import cpu
from redlang.targets.cpu import ObjectCode
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.ir.loops import Loops

KEPT_EXTENTS = 4096
"""Sets of extents whose runs one launcher remembers."""

SCRATCH_KEPT = 1 << 26
"""Bytes of scratch memory that a thread keeps for its next call."""

Entry: TypeAlias = Callable[[Any, Any, Any, int, int, int], None]
"""A compiled kernel: addresses, ints, floats, first unit, behind the last, scratch."""


@dataclass(frozen=True, slots=True)
class Details:
    """What code does and how it is called: for new extents and for questions, not for calls.

    Attributes:
        loops: What it does.
        arguments: What stands where in the argument lists.
        buffers, fixed: Scratch memory of each kernel.
    """

    loops: Loops
    arguments: Arguments
    buffers: tuple[tuple[Buffer, ...], ...]
    fixed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Machine code of one plan, as the disk cache keeps it.

    Attributes:
        built: Object code with an entry for each kernel, in order.
        counts: The lengths of the argument lists: addresses, ints, floats.
        details: The `Details`, pickled: a call whose extents are known does without.
    """

    built: ObjectCode
    counts: tuple[int, ...]
    details: bytes = field(repr=False)


class Code:
    """Machine code of one plan, linked into this process.

    Attributes:
        made: What it was linked from.
        entries: One for each kernel, in order.
    """

    def __init__(self, made: Made) -> None:
        """Link `made`."""
        self.made = made
        self._module = cpu.load(made.built)
        self.entries: tuple[Entry, ...] = tuple(self._module.functions.values())

    @cached_property
    def details(self) -> Details:
        """What it does and how it is called."""
        details: Details = pickle.loads(self.made.details)
        return details


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the extents of a call make of its code.

    Attributes:
        steps: Of each kernel: its units, the least that are worth a thread, bytes of scratch.
        spaces: Bytes of each workspace.
        head: The extents that kernels are passed.
    """

    steps: tuple[tuple[int, int, int], ...]
    spaces: tuple[int, ...]
    head: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Code for the extents of a call, and what they make of it."""

    code: Code
    geometry: Geometry


Find: TypeAlias = Callable[[Mapping[str, int], UnitAxes], Found]
"""Finds code for extents and for the axis of unit stride of each array and result."""


class Tuner(Protocol):
    """Says what to measure, and is told how long it took."""

    def candidates(self, extents: Mapping[str, int], unit: UnitAxes) -> tuple[Found, ...]:
        """Return code to choose from by measuring; none if nothing is to be measured."""

    def settle(self, extents: Mapping[str, int], unit: UnitAxes, times: tuple[float, ...]) -> None:
        """Note the seconds that each took."""


@dataclass(slots=True, eq=False)
class Compiled:
    """The backend that runs machine code.

    Attributes:
        find: Finds code.
        tuner: Has plans measured, where that was asked for.
        unit: The axis along which each array of the launcher has stride 1.
    """

    find: Find
    tuner: Tuner | None = None
    unit: dict[str, str | None] = field(default_factory=dict)

    @property
    def backend(self) -> Compiled:
        """Return this backend."""
        return self

    def may_alias(self, result: int, array: str, extents: Mapping[str, int]) -> bool:
        """Tell whether a result may be stored over an input, element by element."""
        from redlang.schedule.in_place import in_place  # noqa: PLC0415  (few calls ask)

        return in_place(self.find(extents, self.unit).code.details.loops, result, array)

    def emit(self, launch: Launch) -> None:
        """Add the lines that find a run and call it."""
        stored = (*launch.inputs, *launch.outputs)
        unit = self.unit = {x.name: _unit_axis(x) for x in stored}
        if short_rows(launch.program) and all(x.contiguous for x in stored):
            unit[PACKED] = None
        launch.names["layout"] = dict(unit)
        axes = [axis.name for axis in launch.program.axes]
        runs = _Runs(partial(self._run, dict(unit)), tuple(axes))
        launch.names |= {"runs": runs, "find_run": runs.find}
        launch.lines += [
            "run = runs.get(extents)",
            "if run is None:",
            "    run = find_run(extents)",
        ]
        addresses: list[str] = []
        wholes: list[str] = []
        floats: list[str] = []
        gathered = _gathered(launch.program)
        for x in stored:
            addresses.append(x.address)
            wholes += _stride_lines(launch, x, unit[x.name])
            if x.name in gathered:
                _stand_in(launch, x, unit)
        params = {p.name: p for p in launch.program.params}
        for name, variable in launch.scalars.items():
            kind = params[name].dtype.kind
            # All whole numbers are packed as i64; u64 keeps its bits.
            bits = f"{variable} - ({variable} >> 63 << 64)" if kind == "uint" else variable
            (floats if kind == "float" else wholes).append(bits)
        launch.lines.append(f"run({_tuple(addresses)}, {_tuple(wholes)}, {_tuple(floats)})")

    def _run(self, unit: UnitAxes, extents: Mapping[str, int]) -> Run:
        """Return the run for these extents, or one that first measures several."""
        tuner = self.tuner
        candidates = () if tuner is None else tuner.candidates(extents, unit)
        if tuner is None or len(candidates) < 2:
            return _make_run(self.find(extents, unit))
        runs = [_make_run(found) for found in candidates]
        program = candidates[0].code.details.loops.program
        inputs = sum(isinstance(param, ArrayParam) for param in program.params)
        return on_trial(runs, inputs, len(program.results), partial(tuner.settle, extents, unit))


def _unit_axis(x: Stored) -> str | None:
    """Return the axis along which neighbours are adjacent in memory."""
    if x.unit_dim is None or not x.dims:
        return None
    axes = x.dims[x.unit_dim].axes
    return axes[-1] if axes else None


def _stride_lines(launch: Launch, x: Stored, unit: str | None) -> list[str]:
    """Add lines that compute strides; return the text of those that are passed, by axis."""
    strides = [f"t{x.variable}_{i}" for i in range(len(x.dims))]
    if x.contiguous:
        step: list[str] = []
        texts = []
        for dim in reversed(x.dims):
            texts.append(" * ".join(step) or "1")
            step.insert(0, launch.length(x, dim))
        launch.lines += [
            f"{name} = {text}" for name, text in zip(strides, reversed(texts), strict=True)
        ]
    elif strides:
        given = x.library.strides_text.format(x.variable)
        launch.lines.append(f"{''.join(f'{name}, ' for name in strides)} = {given}")
        if x.library.strides_in_bytes and x.dtype.bytes > 1:
            launch.lines += [f"{name} //= {x.dtype.bytes}" for name in strides]
    passed = []
    for name, dim in zip(strides, x.dims, strict=True):
        for i, axis in enumerate(dim.axes):
            inner = dim.axes[i + 1 :]
            scale = f" * {launch.extents.product(inner)}" if inner else ""
            if axis != unit:
                passed.append(f"{name}{scale}")
    return passed


def _gathered(program: Program) -> frozenset[str]:
    """Return the arrays that are read at computed places."""
    values = [e for d in program.definitions for e in walk.expressions(d.value)]
    values += [result.value for result in program.results]
    return frozenset(
        node.array
        for value in values
        for node in walk.nodes(value)
        if isinstance(node, Load) and not all(isinstance(p, Index) for p in node.subscripts)
    )


def _stand_in(launch: Launch, x: Stored, unit: UnitAxes) -> None:
    """Add lines that put zeros in the place of an array without elements.

    What is gathered is read before anybody asks whether it is there: a place outside of an axis
    reads the nearest element, which for an empty axis is the one at -1.
    """
    axes = [axis for dim in x.dims for axis in dim.axes]
    known = short_rows(launch.program) if PACKED in unit else {}
    steps = {axis: known.get(Stride(x.name, axis), 0) for axis in axes}
    steps |= {axis: 1 for axis in axes if axis == unit[x.name]}
    sizes = {axis: launch.extents.known[axis] for axis in axes}
    reach = " + ".join(f"{n} * max({sizes[axis]}, 1)" for axis, n in steps.items() if n)
    room = launch.constant(f"{x.dtype.bytes} * ({reach or 0})")
    empty = launch.constant(f"0 in {_tuple(list(sizes.values()))}")
    launch.names["zeros"] = np.zeros
    strides = [f"t{x.variable}_{i} = " for i in range(len(x.dims))]
    launch.lines += [
        f"if {empty}:",
        f"    {''.join(strides)}0",
        f"    z{x.variable} = zeros(2 * {room} + {x.dtype.bytes}, 'u1')",
        f"    {x.address} = z{x.variable}.__array_interface__['data'][0] + {room}",
    ]


def _tuple(parts: Sequence[str]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"


class _Runs(OrderedDict[tuple[int, ...], Run]):
    """Runs by extents; `get` is all that a warm call does."""

    def __init__(self, make: Callable[[Mapping[str, int]], Run], axes: tuple[str, ...]) -> None:
        super().__init__()
        self._make = make
        self._axes = axes

    def find(self, extents: tuple[int, ...]) -> Run:
        """Return the run for extents not seen before; two threads may both make it."""
        run = self._make(dict(zip(self._axes, extents, strict=True)))
        # No lock: a fork could leave it held, and each of these steps is one of the interpreter's.
        while len(self) >= KEPT_EXTENTS:
            with contextlib.suppress(KeyError):
                self.popitem(last=False)
        self[extents] = run
        return run


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One kernel of a run; `code` keeps it alive."""

    entry: Entry
    units: int
    minimum: int
    scratch: int
    code: Code


def _make_run(found: Found) -> Run:
    """Return the run of code for some extents."""
    code, geometry = found.code, found.geometry
    steps = tuple(
        _Step(entry, *numbers, code)
        for entry, numbers in zip(code.entries, geometry.steps, strict=True)
    )
    return _runner(steps, geometry.head, geometry.spaces)


def _runner(steps: tuple[_Step, ...], head: tuple[int, ...], spaces: tuple[int, ...]) -> Run:
    pack_addresses, pack_ints, pack_floats = (
        struct.Struct(f"{count}{code}").pack
        for count, code in zip(steps[0].code.made.counts, "Qqd", strict=True)
    )
    only = steps[0]

    def run_inline(
        addresses: tuple[int, ...], wholes: tuple[int, ...], floats: tuple[float, ...]
    ) -> None:
        only.entry(
            pack_addresses(*addresses),
            pack_ints(*head, *wholes),
            pack_floats(*floats),
            *(0, only.units, 0),
        )

    def run(addresses: tuple[int, ...], wholes: tuple[int, ...], floats: tuple[float, ...]) -> None:
        workspaces = [_aligned(size) for size in spaces]
        packed = (
            pack_addresses(*addresses, *(address for _, address in workspaces)),
            pack_ints(*head, *wholes),
            pack_floats(*floats),
        )
        for step in steps:
            pool().run(partial(_piece, step, packed), step.units, step.minimum)

    small = only.units < 2 * only.minimum and only.scratch == 0
    return run_inline if len(steps) == 1 and not spaces and small else run


def _piece(step: _Step, packed: tuple[bytes, bytes, bytes], first: int, stop: int) -> None:
    memory, address = _scratch(step.scratch)
    step.entry(*packed, first, stop, address)
    del memory


_local = threading.local()


def _scratch(size: int) -> tuple[object, int]:
    """Return scratch memory of this thread and its address, 64-byte aligned."""
    if size == 0:
        return None, 0
    held: tuple[object, int, int] | None = getattr(_local, "scratch", None)
    if held is None or held[2] < size:
        memory, address = _aligned(size)
        if size > SCRATCH_KEPT:
            return memory, address
        held = (memory, address, size)
        _local.scratch = held
    return held[0], held[1]


def _aligned(size: int) -> tuple[object, int]:
    memory = np.empty(size + 64, np.uint8)
    return memory, (memory.ctypes.data + 63) & -64
