"""The frame of a kernel's text: scopes, parameters, thread numbers, ranges.

A scope is the unit itself or the body of a loop. Text goes to the outermost scope in which all that
it reads is known, so that what does not change in a loop stands before it: `Frame.at(depth)` gives
the lines to write to. Variables that stand for thread numbers and ranges are made when they are
first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import (
    Address,
    Classes,
    Counters,
    Number,
    Parameter,
    Pointer,
)
from redlang.codegen.cuda.module import Module
from redlang.errors import InternalError
from redlang.ir import walk
from redlang.ir.loops import Kernel, Loops
from redlang.ir.program import ArrayParam, Expr, Index, Ref
from redlang.ir.types import DType
from redlang.schedule.threads import Spread, ThreadPlan
from redlang.schedule.views import base_of, stored_operands

CODES = {"bool": "bool", "i64": "i64", "u64": "u64", "f32": "f32", "f64": "f64"}

LARGEST_LEFT = 1 << 30
"""Elements left on an axis are clamped to this: enough for any tile, and an i32."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a thread holds.

    Attributes:
        text: A variable.
        axes: The axes of its tile, those along which a thread holds several elements.
        code: Its type code.
    """

    text: str
    axes: tuple[str, ...]
    code: str


@dataclass(slots=True)
class Scope:
    """The unit, or the body of a loop or branch.

    Attributes:
        axes: Axes that have their range here.
        lines: Its text so far.
        names: Values that statements defined here.
        known: Values of expressions computed here.
        variables: Thread numbers and ranges that have a variable here.
    """

    axes: frozenset[str]
    lines: list[str] = field(default_factory=list)
    names: dict[str, Value] = field(default_factory=dict)
    known: dict[Expr, Value] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Memory:
    """An array parameter, a result or a workspace.

    Attributes:
        name: As `Address` has it.
        axes: Its axes in memory order.
        dtype: What it stores.
        kind: Whose it is: a workspace, which is row-major, a result, a parameter, or a parameter
            that an earlier kernel of the call has stored.
    """

    name: str
    axes: tuple[str, ...]
    dtype: DType
    kind: str


class Frame:
    """What all parts of the emitter share while one kernel is written."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: ThreadPlan, classes: Classes) -> None:
        self.loops = loops
        self.kernel = kernel
        self.plan = plan
        self.classes = classes
        self.module = Module(short=is_short(loops))
        self.entry = self.module.names.fresh(kernel.name)
        self.order = tuple(axis.name for axis in loops.program.axes)
        self.scopes: list[Scope] = []
        self.slots: dict[str, int] = {}
        # Elements of axes of which a part is read at a time.
        self.parted: dict[str, int] = {}
        self.homes: dict[str, int] = {}
        self.parameters: dict[Parameter, str] = {}
        self.shared_bytes = 0
        self.has_met_cluster = False
        self.memories = {memory.name: memory for memory in _memories(loops)}
        self.stand_ins: dict[str, Value] = {}

    # Scopes -----------------------------------------------------------------------------------

    @contextmanager
    def scope(self, axes: Iterable[str], written: frozenset[str] = frozenset()) -> Iterator[Scope]:
        """Open a scope in which `axes` have their ranges and the names `written` change."""
        before = dict(self.homes)
        self.forget(written)
        self.scopes.append(Scope(frozenset(axes)))
        depth = len(self.scopes) - 1
        self.homes |= {name: depth for name in written if name in self.homes}
        yield self.scopes[-1]
        self.scopes.pop()
        self.homes = {
            name: min(home, depth - 1) if name in before else home
            for name, home in self.homes.items()
            if home < depth or name in before
        }
        self.forget(written)

    def line(self, text: str) -> None:
        """Write a line in the innermost scope."""
        self.scopes[-1].lines.append(text)

    def at(self, depth: int) -> list[str]:
        """Return the lines of a scope."""
        return self.scopes[depth].lines

    @property
    def depth(self) -> int:
        """Return the innermost scope's depth."""
        return len(self.scopes) - 1

    def axis_depth(self, axis: str) -> int:
        """Return the depth of the scope that gives `axis` its range; 0 for list slots."""
        # A merge goes over segments inside the range of the block's own segment.
        for depth in reversed(range(len(self.scopes))):
            if axis in self.scopes[depth].axes:
                return depth
        if axis in self.slots:
            return 0
        raise InternalError(f"axis {axis!r} has no range in {self.kernel.name}")

    def depth_of(self, expr: Expr) -> int:
        """Return the outermost scope in which all that `expr` reads is known."""
        depth = 0
        for node in walk.nodes(expr):
            if isinstance(node, Index):
                depth = max(depth, self.axis_depth(node.axis))
            elif isinstance(node, Ref):
                depth = max(depth, self.ref_depth(node))
        return depth

    def ref_depth(self, ref: Ref) -> int:
        """Return the outermost scope in which a name has the value that it has here."""
        if ref.name in self.homes:
            return self.homes[ref.name]
        axis, _, end = ref.name.rpartition(".")
        if end in ("first", "last") and axis not in ("", "result"):
            return self.axis_depth(axis)
        return max((self.axis_depth(axis) for axis in ref.type.axes), default=0)

    def define(self, name: str, value: Value) -> None:
        """Let `name` mean `value` from here on."""
        self.forget(frozenset({name}))
        if name in self.homes:
            for scope in self.scopes:
                if name in scope.names:
                    scope.names[name] = value
                    return
        self.scopes[-1].names[name] = value
        self.homes[name] = self.depth

    def lookup(self, name: str) -> Value | None:
        """Return what a statement defined as `name`."""
        if name in self.stand_ins:
            return self.stand_ins[name]
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def known(self, name: str) -> Value:
        """Return what a statement before has defined as `name`."""
        value = self.lookup(name)
        assert value is not None, name
        return value

    def forget(self, names: frozenset[str]) -> None:
        """Drop computed expressions that read names which are about to change."""
        if not names:
            return
        for scope in self.scopes:
            for expr in [e for e in scope.known if walk.refs(e) & names]:
                del scope.known[expr]

    # Tiles ------------------------------------------------------------------------------------

    def spread(self, axis: str) -> Spread:
        """Return how an axis lies in threads; list slots lie in registers."""
        if axis in self.slots:
            return Spread(axis, registers=self.slots[axis])
        return self.plan.spread(axis)

    def tile_axes(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Return the axes along which a thread holds several elements, in the kernel's order."""
        wanted = {axis for axis in axes if self.spread(axis).count > 1}
        known = [axis for axis in self.order if axis in wanted]
        return (*known, *sorted(wanted - set(known)))

    def counts(self, axes: Sequence[str]) -> dict[str, int]:
        """Return the registers of a tile along each axis."""
        return {axis: self.spread(axis).count for axis in axes}

    def size(self, axes: Sequence[str]) -> int:
        """Return the registers of a tile over `axes`."""
        total = 1
        for axis in axes:
            total *= self.spread(axis).count
        return total

    # Parameters and variables -------------------------------------------------------------------

    def parameter(self, parameter: Parameter) -> str:
        """Return the variable of a kernel parameter."""
        if parameter not in self.parameters:
            match parameter:
                case Address(name):
                    base = f"{name}_at"
                case Extent(axis):
                    base = f"size_{axis}"
                case Stride(array, axis):
                    base = f"{array}_step_{axis}"
                case Number(name, code):
                    base = f"{name}_{code}"
                case Pointer(name):
                    base = f"{name}_at"
                case Counters():
                    base = "counters"
            self.parameters[parameter] = self.module.names.fresh(base)
        return self.parameters[parameter]

    def variable(self, kind: str, axis: str, depth: int, text: Callable[[], str]) -> str:
        """Return a variable of a scope, made of `text` when it is first asked for."""
        name = self.module.names.of(kind, f"{axis}_{kind}")
        for scope in reversed(self.scopes[: depth + 1]):
            if name in scope.variables:
                return name
            if axis in scope.axes:
                # Farther out the axis has another range.
                break
        value = text()
        self.scopes[depth].lines.append(f"{name} = {value}")
        self.scopes[depth].variables.add(name)
        return name

    def thread(self) -> str:
        """Return the thread's number in its unit (i32)."""

        def text() -> str:
            number = "i32(cuda.threadIdx.x)"
            if self.plan.units > 1:
                number = f"i32(cuda.threadIdx.x) & i32({self.plan.unit_threads - 1})"
            if self.plan.blocks > 1:
                block = f"(i32(cuda.blockIdx.x) & i32({self.plan.blocks - 1}))"
                number = f"i32(cuda.threadIdx.x) + {block} * i32({self.plan.threads})"
            return number

        return self.variable("number", "thread", 0, text)

    def thread_bits(self, bits: Sequence[int]) -> str:
        """Return the number that some bits of the thread's number make, lowest first (i32)."""
        if not bits:
            return "i32(0)"
        parts = []
        for run, first in _runs(bits):
            start = run[0]
            shifted = f"({self.thread()} >> i32({start}))" if start else self.thread()
            part = f"({shifted} & i32({(1 << len(run)) - 1}))"
            parts.append(f"({part} << i32({first}))" if first else part)
        return f"i32({' | '.join(parts)})"

    def thread_along(self, axis: str) -> str:
        """Return the thread's number along an axis (i64)."""
        bits = self.plan.bits(axis)
        if not bits:
            return "i64(0)"
        return self.variable("thread", axis, 0, lambda: f"i64({self.thread_bits(bits)})")

    def first(self, axis: str) -> str:
        """Return the first index of the current range of an axis (i64)."""
        return self.module.names.of("first", f"{axis}_first")

    def last(self, axis: str) -> str:
        """Return the last index of the current range of an axis (i64)."""

        def text() -> str:
            stop = self.parameter(Extent(axis))
            tile = self.spread(axis).extent
            return f"t.smaller({self.first(axis)} + {tile}, {stop}) - 1"

        return self.variable("last", axis, self.axis_depth(axis), text)

    def place(self, axis: str) -> str:
        """Return the index of the thread's first element along an axis (i64)."""
        if axis in self.slots:
            return "i64(0)"
        spread = self.spread(axis)
        if spread.threads == 1:
            return self.first(axis)

        def text() -> str:
            own = self.thread_along(axis)
            step = own if spread.width == 1 else f"{own} * {spread.width}"
            return f"{self.first(axis)} + {step}"

        return self.variable("place", axis, self.axis_depth(axis), text)

    def left(self, axis: str) -> str:
        """Return the number of elements of an axis from the thread's first one on (i32)."""

        def text() -> str:
            extent = self.parameter(Extent(axis))
            return f"t.clamped({extent} - {self.place(axis)})"

        return self.variable("left", axis, self.axis_depth(axis), text)

    def is_whole(self, axis: str) -> bool:
        """Say whether the range of an axis always holds as many elements as its spread covers.

        Of an axis that is read in parts, that goes for all of them: rows may end before the last.
        """
        spread = self.spread(axis)
        extent = self.parted.get(axis, spread.extent)
        return axis in self.slots or spread.extent == 1 or self.classes.multiple(axis) % extent == 0


def conjunction(tests: Sequence[str]) -> str:
    """Return the text of "all of these"."""
    if not tests:
        return "True"
    first, *others = tests
    for other in others:
        first = f"logical_and({first}, {other})"
    return first


def is_short(loops: Loops) -> bool:
    """Tell whether every number that a program returns has 16 bits or fewer."""
    floats = [r.dtype for r in loops.program.results if r.dtype.kind == "float"]
    return bool(floats) and all(dtype.bits <= 16 for dtype in floats)


def _runs(bits: Sequence[int]) -> list[tuple[list[int], int]]:
    """Return runs of neighbouring bits, each with the place of its first bit in the result."""
    runs: list[tuple[list[int], int]] = []
    for place, bit in enumerate(bits):
        if runs and runs[-1][0][-1] + 1 == bit:
            runs[-1][0].append(bit)
        else:
            runs.append(([bit], place))
    return runs


def _memories(loops: Loops) -> Iterator[Memory]:
    program = loops.program
    for param in program.params:
        if isinstance(param, ArrayParam):
            is_stored = base_of(param.name) in stored_operands(program)
            kind = "stored" if is_stored else "parameter"
            yield Memory(param.name, param.axes, param.dtype, kind)
    for number, result in enumerate(program.results):
        yield Memory(f"result.{number}", result.axes, result.dtype, "result")
    for space in loops.workspaces:
        yield Memory(space.name, space.axes, space.dtype, "workspace")
