"""A sweep cut among threads and blocks, and the merge of what they found, as one CUDA kernel.

The lowering gives two kernels: one sweeps a segment and leaves its states in memory, one merges the
states of all segments. Here a thread's strip is a segment too. When the sweep is over, the merge's
own body joins the states of lanes, then of warps, then, by the last block, of blocks, each time
with the earlier part on the left. The text of the body stands in loops, so that it is compiled a
few times and not once a partner.

Small states are posted to the block that begins last; large ones, and those of columns, are left in
memory for the block that arrives last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redlang.codegen.arguments import Extent
from redlang.codegen.banks import apart
from redlang.codegen.cuda import posting
from redlang.codegen.cuda.elements import Unit
from redlang.codegen.cuda.folds import BYTES
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes, Counters, KernelText
from redlang.codegen.cuda.reducing import WARP_BITS
from redlang.codegen.cuda.statements import changing_names, list_slots
from redlang.errors import InternalError
from redlang.ir.loops import Compute, Fold, Kernel, Loop, Loops, Statement, Store
from redlang.ir.program import Ref
from redlang.ir.types import Type
from redlang.schedule import tidy
from redlang.schedule.threads import Spread, ThreadPlan


@dataclass(frozen=True, slots=True)
class Merge:
    """The parts of a merge kernel.

    Attributes:
        begin: Gives the states their initial values.
        index: The pseudo axis that numbers segments.
        body: Joins the states with those of one segment, which it reads from workspaces.
        rest: What is done with the merged states.
        joint: Joins all segments at once, or nothing.
    """

    begin: tuple[Statement, ...]
    index: str
    body: tuple[Statement, ...]
    rest: tuple[Statement, ...]
    joint: tuple[Statement, ...] = ()


def take_apart(kernel: Kernel) -> Merge:
    """Return the parts of a merge kernel."""
    for place, statement in enumerate(kernel.body):
        if isinstance(statement, Loop):
            before, after = kernel.body[:place], kernel.body[place + 1 :]
            return Merge(before, statement.axis, statement.body, after, kernel.joint)
    raise InternalError(f"{kernel.name} merges nothing")


def emit_segments(
    loops: Loops,
    sweep: Kernel,
    merge: Kernel,
    plan: ThreadPlan,
    classes: Classes,
    *,
    across_blocks: bool,
) -> KernelText:
    """Return the text of a segmented sweep and its merge.

    Args:
        loops: The lowered program.
        sweep: Its kernel over segments.
        merge: The kernel that merges them.
        plan: The threads of a block.
        classes: What is known of the arrays of every launch.
        across_blocks: Whether blocks share a unit; else one block has all of it.
    """
    unit = SegmentUnit(loops, sweep, merge, plan, classes, across_blocks)
    with unit.frame.scope(unit.unit_axes()) as scope:
        unit.begin()
        unit.whole()
    text = unit.finished(scope.lines)
    segments = unit.index if across_blocks else ""
    return replace(text, segments=segments, posted=unit.posted)


def _stores(statement: Statement) -> list[Store]:
    """Return the stores in a statement, loops over list slots included."""
    match statement:
        case Store():
            return [statement]
        case Loop(body=body):
            return [store for inner in body for store in _stores(inner)]
        case _:
            return []


def _leaves(statement: Statement, index: str) -> bool:
    """Say whether a statement only stores a segment's states."""
    stores = _stores(statement)
    return bool(stores) and all(index in store.axes for store in stores)


class SegmentUnit(Unit):
    """Writes a unit whose sweep is cut."""

    def __init__(
        self,
        loops: Loops,
        sweep: Kernel,
        merge: Kernel,
        plan: ThreadPlan,
        classes: Classes,
        across_blocks: bool,
    ) -> None:
        super().__init__(loops, sweep, plan, classes)
        self.parts = take_apart(merge)
        self.index = self.parts.index
        self.across_blocks = across_blocks
        # The words of a block's states, if they are few enough to be posted.
        self.posted = 0
        written = frozenset[str]().union(*(tidy.writes(s) for s in self.parts.body))
        # The store of each state to its workspace, in the order in which states are stored.
        self.leaving = [s for s in sweep.body if _leaves(s, self.index)]
        self.spaces = {
            store.value.name: store
            for statement in self.leaving
            for store in _stores(statement)
            if isinstance(store.value, Ref)
        }
        self.written = written | set(self.spaces)
        self.changing |= frozenset(self.spaces) | changing_names(merge.body)
        self.frame.slots |= list_slots(merge.body)

    def _unit_number(self) -> str:
        frame = self.frame
        if not self.across_blocks:
            return super()._unit_number()
        frame.line(f"segment, unit = t.divided(i32(cuda.blockIdx.x), {self._unit_count()})")
        frame.line(f"{frame.first(self.index)} = i64(segment)")
        return "unit"

    def ranges(self) -> None:
        """Write the unit's ranges and, where blocks share it, this block's part of the sweep."""
        if self.across_blocks and not self.kernel.grid:
            self.frame.line(f"{self.frame.first(self.index)} = i64(cuda.blockIdx.x)")
        super().ranges()

    def bounds(self, axis: str) -> tuple[str, str]:
        """Return what this block covers of a looped axis."""
        segment = self.kernel.segment
        assert segment is not None
        if not self._is_cut(axis):
            return super().bounds(axis)
        frame = self.frame
        if self.plan.strips:
            # The order of elements does not matter: blocks take tiles in turn, so that all of them
            # read the same part of memory at a time.
            return f"{frame.first(self.index)} * {segment.tile}", frame.parameter(Extent(axis))
        extent, parts = frame.parameter(Extent(axis)), frame.parameter(Extent(self.index))
        own = frame.first(self.index)
        # Blocks have as many tiles each, the first few one more: a division in 32 bits is enough.
        count = f"i32(t.tiles({extent}, {segment.tile}))"
        share = frame.variable("share", axis, 0, lambda: f"t.divided({count}, {parts})")

        def bound(number: str) -> Callable[[], str]:
            more = f"t.smaller({number}, i64({share}[1]))"
            place = f"({number} * i64({share}[0]) + {more}) * {segment.tile}"
            return lambda: f"t.smaller({place}, {extent})"

        start = frame.variable("start", axis, 0, bound(own))
        stop = frame.variable("stop", axis, 0, bound(f"({own} + 1)"))
        return start, stop

    def step(self, axis: str, tile: int) -> str:
        """Return the distance between the tiles of a looped axis that this block takes."""
        if not self._is_cut(axis) or not self.plan.strips:
            return super().step(axis, tile)
        return f"{self.frame.parameter(Extent(self.index))} * {tile}"

    def _is_cut(self, axis: str) -> bool:
        """Tell whether blocks share a looped axis."""
        segment = self.kernel.segment
        return self.across_blocks and segment is not None and axis == segment.axis

    def whole(self) -> None:
        """Write the sweep, the merges, and what comes after."""
        frame = self.frame
        self.run([s for s in self.kernel.body if s not in self.leaving])
        if not self.across_blocks:
            self._join_threads()
            self.run(self.parts.rest)
            return
        frame.line("# Twice: the threads of each block, then those of the last over all blocks.")
        frame.line("turn = i64(0)")
        with self._block("while turn < 2:"):
            self._join_threads()
            frame.line("turn = turn + 1")
            with self._block("if turn == 1:"):
                self._leave()
        with self._block("if turn == 2:"):
            self.run(self.parts.rest)

    def _leave(self) -> None:
        """Leave this block's states to the others; one block takes those of all."""
        frame = self.frame
        parts = frame.parameter(Extent(self.index))
        states = [value for _, value in self._states()]
        number = "i64(unit)" if self.kernel.grid else "i64(0)"
        if posting.suits(frame, states, self._strip_bits()):
            self.posted = posting.words(frame, states)
            own = frame.first(self.index)
            posting.post(frame, states, number, own, parts)
            # It begins after all others, so that those it waits for have begun.
            frame.line(f"last = {own} == {parts} - 1")
        else:
            self.run(self.leaving)
            arrive = frame.module.declare("arrive", f"t.arrival({self._reserve(16)})")
            counter = f"{frame.parameter(Counters())} + {number} * 4"
            frame.line(f"last = {arrive}({counter}, {parts} - 1)")
        with self._block("if last:"):
            if self.posted:
                frame.line("# Slower warps may still read what the others now write again.")
                frame.line("t.barrier()")
            self._begin_again()
            self._join_segments(parts)
        frame.line("if logical_not(last):")
        frame.line("    turn = i64(3)")

    def _begin_again(self) -> None:
        for statement in self.parts.begin:
            if isinstance(statement, Compute) and statement.name in self.spaces:
                self.statement(statement)

    def _join_segments(self, parts: str) -> None:
        """Take one segment for each thread, and join the next ones to it."""
        frame = self.frame
        bits = self._strip_bits()
        shares = 1 << len(bits)
        own = f"i64({frame.thread_bits(bits)})" if bits else "i64(0)"
        initial = {}
        for name, value in self._states():
            initial[name] = frame.module.names.of("initial", f"{name}.initial")
            frame.line(f"{initial[name]} = {value.text}")
        frame.line("step = i64(0)")
        with self._block("", [self.index]):
            others = self._of_segment(f"step + {own}", parts, initial)
            for name, value in self._states():
                frame.line(f"{value.text} = {others[name].text}")
        frame.line(f"step = i64({shares})")
        with self._block(f"while step < {parts}:", [self.index]):
            self._join(self._of_segment(f"step + {own}", parts, initial))
            frame.line(f"step = step + {shares}")

    def _of_segment(self, number: str, parts: str, initial: dict[str, str]) -> dict[str, Value]:
        """Load the states of a segment; a thread for which there is none has neutral ones."""
        frame = self.frame
        frame.line(f"some = {number} < {parts}")
        if self.posted:
            names = [frame.module.names.of("taken", f"{name}.taken") for name, _ in self._states()]
            states = [value for _, value in self._states()]
            posting.take(frame, states, names, number, parts)
        else:
            frame.line(f"{frame.first(self.index)} = t.smaller({number}, {parts} - 1)")
            names = [self._loaded(self.spaces[name].target) for name, _ in self._states()]
        found = {}
        for (name, value), loaded in zip(self._states(), names, strict=True):
            other = frame.module.names.of("other", f"{name}.other")
            frame.line(f"{other} = t.choose(some, {loaded}, {initial[name]})")
            found[name] = replace(value, text=other)
        return found

    def _loaded(self, space: str) -> str:
        """Load a state of a segment from its workspace."""
        memory = self.frame.memories[space]
        return self.values.value(Ref(space, Type(memory.dtype, memory.axes))).text

    # Threads ----------------------------------------------------------------------------------

    def _strip_bits(self) -> list[int]:
        return sorted(bit for axis in self.plan.strips for bit in self.plan.bits(axis))

    def _join_threads(self) -> None:
        """Join the states of lanes and warps; afterwards all threads hold the result."""
        bits = self._strip_bits()
        together = self._threads_as_parts(bits)
        if together is not None:
            self._join_at_once(together)
            return
        self._join_lanes([bit for bit in bits if bit < WARP_BITS])
        self._join_warps([bit for bit in bits if bit >= WARP_BITS], bits)

    def _threads_as_parts(self, bits: Sequence[int]) -> ThreadPlan | None:
        """Return the plan in which strips are parts along the segments' axis, if there is one."""
        if not self.parts.joint or not bits:
            return None
        spreads: list[Spread] = []
        for spread in self.plan.spreads:
            if spread.axis not in self.plan.strips:
                spreads.append(spread)
            elif all(s.axis != self.index for s in spreads):
                spreads.append(Spread(self.index, 1, 1 << len(bits), 1))
        plan = replace(self.plan, spreads=tuple(spreads), strips=())
        return plan if plan.bits(self.index) == tuple(bits) else None

    def _join_at_once(self, plan: ThreadPlan) -> None:
        """Join the states of all threads by the statements for many parts."""
        frame = self.frame
        kept = frame.plan, frame.classes
        # Every thread has a part, so none is masked.
        every = {**frame.classes.multiples, self.index: plan.threads}
        frame.plan, frame.classes = plan, replace(frame.classes, multiples=every)
        frame.stand_ins = {self.spaces[name].target: value for name, value in self._states()}
        with self._block("", [self.index]):
            pending: list[Fold] = []
            for statement in self.parts.joint:
                made = {name for fold in pending for name in fold.names}
                if pending and not made.isdisjoint(tidy.reads(statement)):
                    self._fold_together(pending)
                    pending = []
                if isinstance(statement, Fold):
                    pending.append(statement)
                else:
                    self.statement(statement)
        frame.stand_ins = {}
        frame.plan, frame.classes = kept

    def _join_lanes(self, bits: Sequence[int]) -> None:
        frame = self.frame
        if not bits:
            return
        if list(bits) != list(range(bits[0], bits[-1] + 1)):
            for bit in bits:
                self._join_lanes([bit])
            return
        frame.line("# Lower lanes hold earlier parts.")
        frame.line(f"mask = i64({1 << bits[0]})")
        with self._block(f"while mask <= {1 << bits[-1]}:"):
            frame.line(f"upper = (i64({frame.thread()}) & mask) != 0")
            others = {}
            for name, value in self._states():
                far = frame.module.names.of("far", f"{name}.far")
                other = frame.module.names.of("other", f"{name}.other")
                frame.line(f"{far} = t.exchanged({value.text}, i32(mask))")
                frame.line(f"{other} = t.choose(upper, {value.text}, {far})")
                frame.line(f"{value.text} = t.choose(upper, {far}, {value.text})")
                others[name] = replace(value, text=other)
            self._join(others)
            frame.line("mask = mask * 2")

    def _join_warps(self, bits: Sequence[int], strips: Sequence[int]) -> None:
        frame = self.frame
        if not bits:
            return
        peers = 1 << len(bits)
        rest = [b for b in range(self.plan.threads.bit_length() - 1) if b not in strips]
        lanes = sum(1 << bit for bit in strips if bit < WARP_BITS)
        writes = f"(i64({frame.thread()}) & {lanes}) == 0" if lanes else "True"
        places = {}
        for name, value in self._states():
            count = frame.size(value.axes)
            size = -(-BYTES[value.code] * count // 16) * 16
            region = apart(size * peers) if rest else size * peers
            offset = self._reserve(region << len(rest))
            group = f"i64({frame.thread_bits(rest)}) * {region}" if rest else "i64(0)"
            base = f"{offset} + {group}"
            kind = f'"{value.code}", {count}'
            put = frame.module.declare(f"put_{value.code}", f"t.shared_store({kind})")
            get = frame.module.declare(f"get_{value.code}", f"t.shared_load({kind})")
            own = f"{base} + i64({frame.thread_bits(bits)}) * {size}"
            frame.line(f"{put}({own}, {writes}, {value.text})")
            places[name] = (get, base, size)
        frame.line("t.barrier()")
        if lanes == (1 << WARP_BITS) - 1:
            # Each warp joins the states of all: a lane takes that of the warp of its number.
            own = f"i64({frame.thread_bits(range(len(bits)))})"
            for name, value in self._states():
                get, base, size = places[name]
                frame.line(f"{value.text} = {get}({base} + {own} * {size})")
            self._join_lanes(range(len(bits)))
            frame.line("t.barrier()")
            return
        for name, value in self._states():
            get, base, _ = places[name]
            frame.line(f"{value.text} = {get}({base})")
        frame.line("peer = i64(1)")
        with self._block(f"while peer < {peers}:"):
            others = {}
            for name, value in self._states():
                get, base, size = places[name]
                other = frame.module.names.of("other", f"{name}.other")
                frame.line(f"{other} = {get}({base} + peer * {size})")
                others[name] = replace(value, text=other)
            self._join(others)
            frame.line("peer = peer + 1")
        # The region is written again when blocks have been merged.
        frame.line("t.barrier()")

    def _states(self) -> list[tuple[str, Value]]:
        found = []
        for name in self.spaces:
            value = self.frame.lookup(name)
            assert value is not None, name
            found.append((name, value))
        return found

    def _join(self, others: dict[str, Value]) -> None:
        """Write the merge's body, reading the right states from variables, not from memory."""
        self.frame.stand_ins = {self.spaces[name].target: value for name, value in others.items()}
        self.run(self.parts.body)
        self.frame.stand_ins = {}

    # Text -------------------------------------------------------------------------------------

    def _reserve(self, size: int) -> int:
        """Return the offset of a region of shared memory; the same size of it is now taken."""
        offset = self.frame.shared_bytes
        self.frame.shared_bytes += -(-size // 16) * 16
        return offset

    def _block(self, head: str, axes: Sequence[str] = ()) -> _Block:
        """Open a block under a head, if any; what does not belong into it goes before it."""
        return _Block(self, head, axes)


class _Block:
    """A scope whose lines stand, indented, under a head if there is one; states change in it."""

    def __init__(self, unit: SegmentUnit, head: str, axes: Sequence[str]) -> None:
        self.frame = unit.frame
        self.head = head
        self.inner = unit.frame.scope(axes, frozenset(unit.written))

    def __enter__(self) -> None:
        self.scope = self.inner.__enter__()

    def __exit__(self, *problem: object) -> None:
        self.inner.__exit__(None, None, None)
        indent = "    " if self.head else ""
        if self.head:
            self.frame.line(self.head)
        for line in self.scope.lines or ["pass"]:
            self.frame.line(f"{indent}{line}")
