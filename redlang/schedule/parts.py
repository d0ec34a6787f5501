"""Parts of plans, and how axes are spread over the threads of a block."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from redlang.ir.loops import GridAxis
from redlang.ir.program import Program
from redlang.schedule import again
from redlang.schedule.classes import ClassPlan
from redlang.schedule.device import THREADS_PER_BLOCK, WARP
from redlang.schedule.facts import Facts, Layout, power_above, unique
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.nests import Nest
from redlang.schedule.plan import NestPlan
from redlang.schedule.shapes import power_below
from redlang.schedule.threads import Spread, ThreadPlan

HELD = 64
"""Elements of one tile that a thread may hold: more spill at 255 registers."""
TILE = THREADS_PER_BLOCK * 32
"""Elements that a block may hold at a time: 1024 threads have 64 registers each."""
REGISTERS = 65536
"""Registers of an SM, on every device since compute capability 5.0."""
WORD = 4
"""Bytes of the smallest piece that is copied without registers."""
PART = 8
"""Elements of rows in registers that are computed with at a time."""
LEAST, ROOM = 24, 32
"""Registers of a thread that reads its rows so, beside those that hold them: without what else is
read of a part, and at least."""
KEPT = 32
"""Elements of rows up to which a thread keeps them as it computes with them."""
BLOCKS = (128, 256)
"""Threads that units smaller than a warp share."""


@dataclass(frozen=True, slots=True)
class Part:
    """How one nest runs.

    Attributes:
        nest: The nest, in the form that the plan runs.
        plan: What is tiled how.
        threads: How tiles lie in threads.
        across: Whether blocks share a unit's sweep.
        matrix: How tiles lie in warp groups, where products go to the tensor core.
        classes: How elements go to classes, where each moves the state of its own.
    """

    nest: Nest
    plan: NestPlan
    threads: ThreadPlan
    across: bool = False
    matrix: MatrixPlan | None = None
    classes: ClassPlan | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Parts that run one after another and do what one nest asks for."""

    family: str
    parts: tuple[Part, ...]


class Spreader:
    """Spreads the axes of one form of a nest."""

    def __init__(
        self, program: Program, nest: Nest, extents: Mapping[str, int], layout: Layout
    ) -> None:
        self.facts = Facts(program, nest, extents, layout)
        self.nest = nest
        facts = self.facts
        self.vector = facts.vector
        self.held_axes = unique([*facts.swept, *facts.mapped, *facts.extra, *facts.inner])
        self.width = max(1, min(facts.width, 8))

    def held_by_thread(self, shape: Sequence[Spread]) -> int:
        """Return how many elements of a value a thread holds."""
        return self.facts.held({s.axis: s.count for s in shape})

    def whole(self, tiles: Mapping[str, int]) -> NestPlan:
        """Return the plan of a unit that holds all it sweeps over."""
        limits = tuple((a, self.facts.extent(a)) for a in self.held_axes)
        grid, axes = self.grid(tiles), tuple(self.held_axes)
        return NestPlan("on-chip", grid, self.slots(), axes, None, limits)

    def widths(self) -> tuple[int, ...]:
        """Return how many neighbouring elements a thread may move at once."""
        return tuple(dict.fromkeys((self.width, max(1, self.width // 2))))

    def slots(self) -> tuple[tuple[str, int], ...]:
        """Return the tiles of list slots: all of them."""
        return tuple(self.facts.slots.items())

    def inner_is_short(self) -> bool:
        """Tell whether a thread can hold what is evaluated inside of sweeps."""
        return all(self.facts.is_short(axis) for axis in self.facts.inner)

    def is_product(self) -> bool:
        """Tell whether a nest is a product of matrices, of which no thread holds a side whole."""
        return all(not all(map(self.facts.is_short, side)) for side in self.facts.sides)

    def grid(self, tiles: Mapping[str, int], extra: Sequence[str] = ()) -> tuple[GridAxis, ...]:
        """Return the axes of the grid with their tiles, those left out with one element."""
        axes = self.facts.program.ordered(frozenset({*self.nest.base, *extra}))
        return tuple(GridAxis(axis, tiles.get(axis, 1)) for axis in axes)

    def first(self, axes: Sequence[str]) -> str:
        """Return the axis along which neighbouring lanes go: the vector axis, or the last."""
        if self.vector is not None and self.vector in axes:
            return self.vector
        facts = self.facts
        return ([a for a in axes if a not in facts.run and a not in facts.slots] or axes)[-1]

    def spread(self, axes: Sequence[str], threads: int, width: int) -> list[Spread]:
        """Spread whole extents over threads, the vector axis first; it comes last in the result."""
        facts = self.facts
        vector = self.first(axes)
        order = [vector, *(a for a in reversed(axes) if a != vector)]
        found = []
        left = threads
        for axis in order:
            extent = facts.extent(axis)
            own = width if axis == self.vector else 1
            if axis in facts.slots or (axis != vector and facts.is_short(axis)):
                # Every lane that has folded a list has all of it.
                found.append(Spread(axis, extent))
                continue
            count = min(left, power_below(-(-extent // own)))
            found.append(Spread(axis, -(-extent // (count * own)), count, own))
            left //= count
        return list(reversed(found))

    def strips(
        self, swept: Sequence[str], threads: int, registers: int, column: Sequence[str], width: int
    ) -> list[Spread] | None:
        """Spread tiles of swept axes over threads; None where a smaller plan does the same."""
        facts = self.facts
        if threads < 1:
            return None
        vector = self.first(swept)
        order = [vector, *(a for a in reversed(swept) if a != vector)]
        found = []
        left, more = threads, registers
        for axis in order:
            if axis in facts.run:
                found.append(Spread(axis, facts.extent(axis)))
                continue
            own = width if axis == self.vector and not column else 1
            groups = max(1, -(-facts.extent(axis) // own))
            count = min(left, power_below(groups))
            rounds = min(more, max(1, groups // count))
            found.append(Spread(axis, rounds, count, own))
            left //= count
            more //= rounds
        if left > 1 or more > 1 or prod(s.count for s in found) > HELD:
            return None
        if prod(s.extent for s in found) > TILE:
            return None
        return list(reversed(found))

    def moves_words(self, threads: ThreadPlan) -> bool:
        """Tell whether what a sweep reads lies in pieces that can be copied to shared memory."""
        reads = [a for a in self.facts.accesses if not a.written and not a.gathered]
        return all(
            threads.spread(self.vector).width * a.size >= WORD
            for a in reads
            if self.vector is not None and self.facts.run_axis(a) == self.vector
        )

    @functools.cached_property
    def reads_again(self) -> bool:
        """Whether rows may be computed with anew for each fold."""
        return again.suits(self.facts)

    def stored(self, threads: ThreadPlan) -> ThreadPlan:
        """Return a plan that reads what a unit holds part by part, if it has parts."""
        (held, *others) = [s for s in threads.spreads if s.count > 1] or [Spread("")]
        parts = held.axis == self.vector and held.registers > 1 and not others
        if not (parts and self.reads_again and self.moves_words(threads)):
            return threads
        blocks = REGISTERS // (stored_registers(self.facts, threads) * threads.threads)
        return replace(threads, stored=True, min_blocks=max(1, blocks))

    def resident(self, threads: ThreadPlan) -> int:
        """Return how many blocks of a shared sweep an SM should hold at once."""
        words = 2 if self.facts.element_work.double else 1
        held = words * prod(s.count for s in threads.spreads)
        states = words * sum(s.k or 1 for sweep in self.nest.sweeps for s in sweep.states)
        wanted = held + 2 * states
        registers = 64 if wanted <= 32 else 128 if wanted <= 64 else 255
        return max(1, REGISTERS // (registers * threads.threads))

    def tiles(self, axes: Sequence[str], threads: int, registers: int, width: int) -> list[Spread]:
        """Spread tiles of the innermost axes of a map over a block's threads."""
        facts = self.facts
        vector = self.first(axes) if axes else ""
        order = [vector, *(a for a in reversed(axes) if a != vector)] if axes else []
        found = []
        left, more = threads, registers
        for axis in order:
            if axis in facts.slots or (axis != vector and facts.is_short(axis)):
                # Every lane that has folded a list has all of it.
                found.append(Spread(axis, facts.extent(axis)))
                continue
            own = width if axis == self.vector else 1
            groups = max(1, -(-facts.extent(axis) // own))
            count = min(left, power_above(groups))
            rounds = more if groups >= more * count else 1
            if count * own * rounds > 1:
                found.append(Spread(axis, rounds, count, own))
            left //= count
            more //= rounds
        return list(reversed(found))

    def ordered(self, shape: Sequence[Spread]) -> list[Spread]:
        """Return spreads with the vector axis last: neighbouring lanes go along it."""
        return sorted(shape, key=lambda s: s.axis == self.vector)

    def blocks(
        self, family: str, plan: NestPlan, shape: Sequence[Spread], rows: bool
    ) -> Iterator[Candidate]:
        """Yield a plan's thread blocks: units of a warp or less share one."""
        unit = prod(s.threads for s in shape)
        kept = tuple(s for s in shape if s.extent > 1)
        if unit > WARP:
            if unit % WARP == 0 and unit <= THREADS_PER_BLOCK:
                yield Candidate(family, (Part(self.nest, plan, ThreadPlan(kept)),))
            return
        sizes = BLOCKS if rows else BLOCKS[:1]
        for block in sizes:
            units = block // unit
            yield Candidate(family, (Part(self.nest, plan, ThreadPlan(kept, units)),))


def stored_registers(facts: Facts, threads: ThreadPlan) -> int:
    """Return an estimate of the registers of a thread that reads rows part by part."""
    reads = [a for a in facts.accesses if not a.written and facts.vector in a.axes]
    rows = [a for a in reads if {*facts.nest.base} <= set(a.axes)]
    counts = [prod(threads.spread(axis).count for axis in a.axes) for a in rows]
    words = sum(count * a.size / WORD for count, a in zip(counts, rows, strict=True))
    held = sum(counts) if sum(counts) <= KEPT else words
    beside = sum(PART * a.size / WORD for a in reads if a not in rows)
    return -(-int(max(ROOM, LEAST + beside) + held) // 8) * 8
