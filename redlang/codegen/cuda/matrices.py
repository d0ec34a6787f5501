"""Loops → a CUDA kernel over matrix tiles for Hopper: warp-group products, fed by tensor copies.

A block is one producer warp group, of which one thread starts copies, and the consumers, 64 rows of
the block's tile each. Both walk the same loops over the same tiles; barriers in shared memory carry
tiles from one to the others and back. Nothing here knows what a kernel is for: operands, layouts,
row reductions, masks and what follows the loops come from the statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from redlang.codegen.cuda.kernel_text import Classes, Counters
from redlang.codegen.cuda.matrix_bodies import inlined_conditions
from redlang.codegen.cuda.matrix_checks import checked_operands, pass_on
from redlang.codegen.cuda.matrix_consumer import Consumer
from redlang.codegen.cuda.matrix_conversions import convert
from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_memory import share
from redlang.codegen.cuda.matrix_producer import fill_ring, indented
from redlang.codegen.cuda.matrix_queue import PLACES, Queue
from redlang.codegen.cuda.matrix_roles import LoopWork, Roles
from redlang.codegen.cuda.matrix_stores import staging_bytes
from redlang.codegen.cuda.matrix_stream import streamed
from redlang.codegen.cuda.matrix_text import MatrixText, unsuited, with_words
from redlang.codegen.cuda.matrix_units import UnitRanges
from redlang.codegen.cuda.text_flow import needed, reads, without
from redlang.ir.loops import Contract, Fold, Kernel, Loop, Loops, Statement
from redlang.ir.program import Expr
from redlang.schedule.bounds import certain
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import GROUP_THREADS, MatrixPlan

WARPS = GROUP_THREADS // WARP


def emit(loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> MatrixText:
    """Return the text of one kernel.

    Args:
        loops: The lowered program.
        kernel: One of its kernels.
        plan: Its tiles; those of the kernel's grid and loops agree with it.
        classes: What is known of the arrays of every launch.

    Raises:
        UnsuitedError: The kernel does what matrix tiles do not; the reason is the message.
    """
    return Emitter(loops, kernel, plan, classes).run()


class Emitter(UnitRanges):
    """Writes one kernel; `consumer_type` writes what a warp group does."""

    consumer_type: type[Consumer] = Consumer

    def __init__(self, loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> None:
        self.kernel = _with_conditions(kernel)
        self.plan = plan
        self.consumer = self.consumer_type(loops, self.kernel, plan, classes)
        self.frame = self.consumer.frame
        self.roles = Roles(loops, self.kernel, plan, classes)
        self.loops = [s for s in self.kernel.body if isinstance(s, Loop)]
        self.works = {id(loop): self.roles.loop(loop) for loop in self.loops}
        self.queue: Queue | None = None
        if not any(work.products or work.paired for work in self.works.values()):
            raise unsuited("there are no products")

    def run(self) -> MatrixText:
        """Write preamble, producer and consumers."""
        frame, consumer = self.frame, self.consumer
        operands = list(dict.fromkeys(operands_of(self.works.values())))
        consumer.works = self.works
        consumer.block_whole = self._whole
        consumer.last_reads = self._last_reads()
        staging = staging_bytes(consumer.staged) * self.plan.groups * WARPS
        self.checked = consumer.checked = checked_operands(list(self.works.values()))
        names = frame.module.names
        ahead = 1 + self.plan.ahead
        consumer.shared = share(operands, self.plan.stages, ahead, staging, self.checked, names)
        queued = self.plan.persistent and self.kernel.segment is None
        if queued and (self._graded() is not None or self._is_scanned()):
            counter = frame.parameter(Counters())
            self.queue = Queue(-(-consumer.shared.bytes // 16) * 16, counter)
            consumer.streams = self.plan.ahead and self._is_stream()
        with frame.scope([]) as constants, frame.scope([]) as unit:
            self._block_ranges()
            consumer.ends = {id(loop): self._ends(loop) for loop in self.loops}
            if self.queue is not None:
                firsts = [frame.block_first(grid.axis) for grid in self.kernel.grid]
                ends = [end for pair in consumer.ends.values() for end in pair]
                self.queue = replace(self.queue, values=(*firsts, *ends))
            producing, checker = self._producer(operands), self._checker()
            with frame.scope(consumer.unit_axes()) as body:
                consumer.ranges()
                self._wait_for_whole(operands)
                consumer.run(self.kernel.body)
            scan = self._scan()
        if self.queue is None and scan:
            scan = ["number = i32(cuda.blockIdx.x)", *unit.lines, *scan]
        producer = self._each_unit(unit.lines, producing, scan=scan)
        checking = self._each_unit(unit.lines, checker, "lead") if checker else []
        if consumer.stream is None or self.queue is None:
            consumed = self._each_unit(unit.lines, body.lines, "leads")
        else:
            parts = consumer.stream
            read = reads([*body.lines, *parts.first, *parts.tile, *parts.rest, *parts.last])
            own = [*self._known(), *self._not_handed_on(unit.lines, read)]
            consumed = streamed(parts, self.queue, own, body.lines, names)
        return self._assembled(constants.lines, scan, producer, checking, consumed)

    def _last_reads(self) -> dict[Operand, Loop]:
        """Return the last loop that reads each operand that the whole unit uses."""
        found: dict[Operand, Loop] = {}
        for loop in self.loops:
            for operand in operands_of([self.works[id(loop)]]):
                if operand.loop is None:
                    found[operand] = loop
        return found

    # What is found out ahead --------------------------------------------------------------------

    def _is_scanned(self) -> bool:
        """Say whether what arrays hold tells tiles apart."""
        for loop in self.loops:
            self._some(loop)
            for use in loop.body:
                if isinstance(use, Fold | Contract) and use.condition is not None:
                    certain(use.condition, self.consumer.builder, self.consumer.knowledge)
        return bool(self.consumer.summaries.uses)

    def _scan(self) -> list[str]:
        """Return lines with which a warp, or all, find out what roles ask of a unit's tiles."""
        consumer, frame = self.consumer, self.frame
        alone = self.queue is not None
        warp, warps = ("i32(0)", 1) if alone else ("(i32(cuda.threadIdx.x) >> i32(5))", self.warps)
        lines: list[str] = []
        for loop in self.loops:
            columns = consumer.summaries.of_columns(loop.axis, frame.first(loop.axis))
            ends = consumer.ends[id(loop)]
            lines += consumer.scan.lines(loop.axis, ends, columns, self._asked, warp, warps)
        if not lines:
            return []
        return [*self._known(), *consumer.summaries.of_rows(self._interval), *lines]

    def _asked(self, test: Expr) -> str:
        return self.consumer.values.value(self._of_block(test)).text

    def _known(self) -> list[str]:
        """Return the line that says where the answers for a unit are."""
        if not self.consumer.scan.asked:
            return []
        place = "" if self.queue is None else f" + queue_place * {self.consumer.scan.bytes}"
        return [f"known = shared + {self._begin_answers()}{place}"]

    def _begin_answers(self) -> int:
        """Return where answers begin in shared memory."""
        total = self.consumer.shared.bytes + self.frame.shared_bytes
        total = total if self.queue is None else self.queue.start + self.queue.bytes
        return -(-total // 16) * 16

    @property
    def warps(self) -> int:
        """Return the warps of a block."""
        return self.plan.threads // WARP

    # Roles ------------------------------------------------------------------------------------

    def _warp_leads(self) -> list[str]:
        if not any(work.fetches for work in self.works.values()):
            return []
        return ["leads_warp = i32((i32(cuda.threadIdx.x) & i32(31)) == i32(0))"]

    def _wait_for_whole(self, operands: Sequence[Operand]) -> None:
        """Wait for operands that the whole unit uses."""
        for operand in operands:
            if operand.loop is None:
                ring = self.consumer.shared.rings[operand]
                self.frame.line(f"w.barrier_wait({ring.full_barrier()}, {ring.parity})")

    def _begin_rings(self) -> list[str]:
        return [line for ring in self.consumer.shared.every for line in ring.begin()]

    def _producer(self, operands: Sequence[Operand]) -> list[str]:
        """Return the lines with which the producer fills rings for one unit."""
        ring_of = self.consumer.shared.copied
        lines: list[str] = []
        for operand in operands:
            if operand.loop is None:
                lines += fill_ring(self.frame, ring_of(operand), None)
        return [*lines, *(line for loop in self.loops for line in self._copying(loop))]

    def _copying(self, loop: Loop) -> list[str]:
        """Return lines that start a loop's copies.

        Operands of late products follow those of the next tile's first ones, as products do: a
        tile's place is free when its product is done. Few rows, whose results leave as they are,
        wait for memory alone: there all places are filled as soon as there are any.
        """
        frame, consumer = self.frame, self.consumer
        _, stop = consumer.ends[id(loop)]
        first, upcoming = frame.first(loop.axis), frame.module.names.of("upcoming", loop.axis)
        work = self.works[id(loop)]
        operands = [o for o in dict.fromkeys(work.operands) if o.loop is not None]
        early = [o for o in operands if o in set(replace(work, tails=()).operands)]
        late = [o for o in operands if o not in early]

        def filled(operands: Sequence[Operand], place: str) -> list[str]:
            rings = [consumer.shared.copied(operand) for operand in operands]
            return [line for ring in rings for line in fill_ring(frame, ring, place)]

        following = [f"{upcoming} = {first} + {loop.tile}"]
        following += consumer.skipped(loop, upcoming, alone=True)
        begin = consumer.entered(loop, alone=True)
        tile = [*filled(operands, first), *following]
        if early and late and self.plan.staged:
            begin += [f"if {first} < {stop}:", *indented(filled(early, first))]
            ahead = [f"if {upcoming} < {stop}:", *indented(filled(early, upcoming))]
            if self.queue is not None and loop is self.loops[-1]:
                # A block that asks for its next unit late leaves it to others that need one now.
                ahead += ["else:", f"    {self.queue.fetch()}"]
            tile = [*following, *ahead, *filled(late, first)]
        return [*begin, f"while {first} < {stop}:", *indented([*tile, f"{first} = {upcoming}"])]

    def _is_stream(self) -> bool:
        """Say whether a unit is one loop whose late products may run beside the next unit's."""
        works = list(self.works.values())
        return len(works) == 1 and bool(works[0].heads and works[0].late)

    def _not_handed_on(self, unit: Sequence[str], read: frozenset[str]) -> list[str]:
        """Return what lines need to know of a unit beside what the queue says."""
        assert self.queue is not None
        return needed(without(unit, frozenset(self.queue.values)), read)

    def _each_unit(
        self,
        unit: Sequence[str],
        lines: Sequence[str],
        lead: str | None = None,
        scan: Sequence[str] = (),
    ) -> list[str]:
        """Return lines that run once, or for each unit of a block that has several.

        Blocks take units back and forth, so that no block has the heaviest of every round.

        Args:
            unit: What says which tiles a unit has.
            lines: One unit's.
            lead: What is not 0 in one lane of a warp; None for the producer.
            scan: What finds out ahead what is asked of tiles.
        """
        block = "i32(cuda.blockIdx.x)"
        if not self.plan.persistent:
            return [f"number = {block}", *unit, *self._known(), *lines]
        if self.queue is not None:
            if lead is None:
                units = f"units = i32({self._units()})"
                return [units, *self.queue.produced(unit, scan, lines)]
            own = self._not_handed_on(unit, reads(lines))
            return self.queue.consumed([*self._known(), *own, *lines], lead)
        return [
            f"units = i32({self._units()})",
            "round_start = i32(0)",
            f"place = {block}",
            "number = place",
            "while round_start < units:",
            *indented(["if number < units:", *indented([*unit, *lines])]),
            "    round_start = i32(round_start + i32(cuda.gridDim.x))",
            "    place = i32(i32(cuda.gridDim.x) - i32(1) - place)",
            "    number = i32(round_start + place)",
        ]

    def _checker(self) -> list[str]:
        """Return the lines with which helpers check or convert the tiles of one unit."""
        frame, shared = self.frame, self.consumer.shared
        if not self.checked and not shared.narrow:
            return []
        lines: list[str] = []
        for loop in self.loops:
            _, stop = self.consumer.ends[id(loop)]
            first = frame.first(loop.axis)
            with frame.scope([loop.axis]) as scope:
                for operand in dict.fromkeys(operands_of([self.works[id(loop)]])):
                    if operand in self.checked:
                        condition = self.checked[operand].contract.condition
                        assert condition is not None
                        whole = self._whole(loop.axis, condition)
                        scope.lines += pass_on(frame, shared.rings[operand], self.plan, whole)
                    elif operand in shared.narrow:
                        scope.lines += convert(frame, shared, operand, self.plan)
            skipped = self.consumer.skipped(loop)
            lines += self.consumer.entered(loop)
            lines += [f"while {first} < {stop}:", *indented(scope.lines)]
            lines += indented([f"{first} = {first} + {loop.tile}", *skipped])
        return lines

    def _whole(self, axis: str, condition: Expr) -> str | None:
        """Return the variable that says whether the block's whole tile of a loop takes part."""
        test = self.consumer.certain(axis, condition)
        if test is None:
            return None
        return self.consumer.values.value(self._of_block(test)).text

    def _assembled(
        self,
        constants: Sequence[str],
        scan: Sequence[str],
        producing: Sequence[str],
        checking: Sequence[str],
        consuming: Sequence[str],
    ) -> MatrixText:
        frame, plan = self.frame, self.plan
        release, claim = [], []
        if plan.exchanges:
            kept, left = plan.shared_registers(
                self.consumer.needed, checks=bool(checking), queued=self.queue is not None
            )
            given = frame.module.declare("give", f"w.release_registers({kept})")
            taken = frame.module.declare("take", f"w.claim_registers({left})")
            release, claim = [f"{given}()"], [f"{taken}()"]
        rings = self._begin_rings()
        first_helper = plan.groups * GROUP_THREADS
        check = [
            f"    elif i32(cuda.threadIdx.x) >= i32({first_helper + WARP}):",
            f"        checker = i32(i32(cuda.threadIdx.x) - i32({first_helper + WARP}))",
            "        lead = i32((checker & i32(31)) == i32(0))",
            *indented(indented([*rings, *checking])),
        ]
        begin = self.consumer.shared.begin(plan.groups * WARPS, plan.checkers)
        if self.queue is not None:
            readers = plan.groups * WARPS + (plan.checkers if checking else 0)
            begin = [*self.queue.begin(readers), *begin]
        warp = [f"    if i32(cuda.threadIdx.x) == i32({first_helper}):"]
        if scan and self.queue is not None:
            warp = [
                f"    if i32(cuda.threadIdx.x) < i32({first_helper + WARP}):",
                "        lane = i32(cuda.threadIdx.x) & i32(31)",
            ]
        lines = [
            "shared = w.shared_base()",
            *constants,
            "if i32(cuda.threadIdx.x) == i32(0):",
            *indented(begin),
            *(scan if self.queue is None else ()),
            "t.barrier()",
            "group = w.warp_uniform(i32(cuda.threadIdx.x) >> i32(7))",
            f"if group == i32({plan.groups}):",
            *indented(release),
            *warp,
            *indented(indented([*rings, *producing])),
            *(check if checking else []),
            "else:",
            *indented(claim),
            "    leads = i32((i32(cuda.threadIdx.x) & i32(31)) == i32(0))",
            *indented(self._warp_leads()),
            *indented([*rings, *self.consumer.first_turn(), *consuming]),
        ]
        if self.consumer.staged:
            # Shared memory is the block's until the last copy has read it.
            lines.append("    w.copies_read()")
        return self._written(lines)

    def _written(self, lines: Sequence[str]) -> MatrixText:
        """Return the kernel whose body has these lines."""
        frame, plan = self.frame, self.plan
        names = ", ".join(frame.parameters.values())
        body = [f"def {frame.entry}({names}):", *indented(lines)]
        return MatrixText(
            entry=frame.entry,
            source=with_words(frame.module.text(body)),
            parameters=tuple(frame.parameters),
            threads=plan.threads,
            min_blocks=plan.min_blocks,
            shared_bytes=self._shared_bytes(),
            grid=tuple((grid.axis, grid.tile) for grid in self.kernel.grid),
            path=plan.unit,
            segments="" if self.kernel.segment is None else self.kernel.segment.index,
            persistent=plan.persistent,
            queued=self.queue is not None,
            before=self.consumer.summaries.storing(),
            spaces=self.consumer.summaries.spaces(),
        )

    def _shared_bytes(self) -> int:
        places = 1 if self.queue is None else PLACES
        return self._begin_answers() + places * self.consumer.scan.bytes


def operands_of(works: Iterable[LoopWork]) -> Iterator[Operand]:
    """Yield the copied operands of loops."""
    for work in works:
        yield from work.operands


def _with_conditions(kernel: Kernel) -> Kernel:
    """Return a kernel whose loops test conditions where they are used."""
    body: list[Statement] = []
    for statement in kernel.body:
        if isinstance(statement, Loop):
            body.append(replace(statement, body=inlined_conditions(statement.body)))
        else:
            body.append(statement)
    return replace(kernel, body=tuple(body))
