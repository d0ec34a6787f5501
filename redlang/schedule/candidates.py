"""The plans that a GPU nest could run with, as far as they make sense at all.

    rows on chip      the swept slice of a unit lies in the registers of its threads, read once
    rows streamed     threads keep states of their own over strips, merged when the sweep is over,
                      by one block or by all blocks that share the unit
    columns           the same, where neighbours in memory belong to different units
    cut               sweeps and maps that no plan keeps together, as nests of their own
    map               no sweep at all
    held              the fallback that runs anything: tiles in order, folded across threads

An extent enters through its class only, so that few plans serve all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from redlang.ir.loops import GridAxis
from redlang.ir.program import Program
from redlang.schedule.cuts import cut
from redlang.schedule.device import THREADS_PER_BLOCK, WARP
from redlang.schedule.facts import Facts, Layout, power_above, unique
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.nests import Nest
from redlang.schedule.plan import Kind, NestPlan
from redlang.schedule.shapes import power_below, spread_part, spread_units, spread_whole
from redlang.schedule.threads import Spread, ThreadPlan

HELD = 64
"""Elements of one tile that a thread may hold: more spill at 255 registers."""
ON_CHIP = THREADS_PER_BLOCK * 32
"""Elements of a slice that a block may hold: 1024 threads have 64 registers each."""
CLUSTERED = THREADS_PER_BLOCK * 8
"""Elements of a slice from which on several blocks may share it."""
CLUSTERS = 512
"""Units from which on every SM has blocks of its own to run."""
REGISTERS = 65536
"""Registers of an SM, on every device since compute capability 5.0."""
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
    """

    nest: Nest
    plan: NestPlan
    threads: ThreadPlan
    across: bool = False
    matrix: MatrixPlan | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Parts that run one after another and do what one nest asks for."""

    family: str
    parts: tuple[Part, ...]


def candidates(
    program: Program,
    nest: Nest,
    separate: Nest | None,
    extents: Mapping[str, int],
    layout: Layout,
    cluster: int = 1,
) -> list[Candidate]:
    """Return the candidates for one nest; never none.

    Args:
        program: The normalised program.
        nest: The nest with incremental sweeps.
        separate: The same with one sweep a dependent stage, if it is grouped alike.
        extents: Those of the shape class.
        layout: Of the arrays.
        cluster: The most blocks of a cluster.
    """
    makers = [Maker(program, nest, extents, layout)]
    if separate is not None and separate != nest:
        makers.append(Maker(program, separate, extents, layout))
    found = [c for maker in makers for c in maker.on_chip(cluster)]
    found += makers[0].streamed()
    pieces = cut(makers[0].facts)
    if len(pieces) > 1:
        found += _cut(program, pieces, extents, layout)
    found += makers[0].maps()
    return list({_identity(c): c for c in [*found, *makers[0].held()]}.values())


def _identity(candidate: Candidate) -> tuple[object, ...]:
    return tuple((id(p.nest), p.plan, p.threads, p.across) for p in candidate.parts)


def _cut(
    program: Program, pieces: Sequence[Nest], extents: Mapping[str, int], layout: Layout
) -> list[Candidate]:
    """Return plans of the pieces side by side: the first few of each, not all combinations."""
    choices = []
    for piece in pieces:
        maker = Maker(program, piece, extents, layout)
        plans = [*maker.streamed(), *maker.maps()] or maker.held()
        choices.append([plan.parts[0] for plan in plans])
    most = max(map(len, choices))
    return [
        Candidate("cut", tuple(plans[min(i, len(plans) - 1)] for plans in choices))
        for i in range(most)
    ]


class Maker:
    """Makes the plans of one form of a nest."""

    def __init__(
        self, program: Program, nest: Nest, extents: Mapping[str, int], layout: Layout
    ) -> None:
        self.facts = Facts(program, nest, extents, layout)
        self.nest = nest
        facts = self.facts
        self.vector = facts.vector
        self.held_axes = unique([*facts.swept, *facts.mapped, *facts.extra, *facts.inner])
        self.width = max(1, min(facts.width, 8))

    # Families ---------------------------------------------------------------------------------

    def on_chip(self, cluster: int) -> Iterator[Candidate]:
        """Yield plans whose units hold all that they sweep over."""
        facts = self.facts
        if not self.nest.sweeps or self._is_product() or not self._inner_is_short():
            return
        size = prod(facts.extent(axis) for axis in self.held_axes)
        yield from self._clusters(size, cluster)
        if size > ON_CHIP:
            return
        rows = self.vector not in self.nest.base
        column = [] if rows or self.vector is None else [self.vector]
        for width in self._widths():
            for lanes in (8, 16, 32) if column else (1,):
                for held in (4, 8, 16, 32, 64):
                    each = max(1, held // width) if column else held
                    wanted = min(power_above(-(-size // each)), THREADS_PER_BLOCK // lanes)
                    shape = self._spread(self.held_axes, wanted, 1 if column else width)
                    if column:
                        shape = [Spread(column[0], 1, lanes, width), *shape]
                    unit = prod(s.threads for s in shape)
                    if _held(shape) > (HELD if unit >= WARP else HELD // 2):
                        continue
                    limits = tuple((a, facts.extent(a)) for a in self.held_axes)
                    plan = NestPlan(
                        "on-chip",
                        self._grid({column[0]: lanes * width} if column else {}),
                        self._slots(),
                        tuple(self.held_axes),
                        None,
                        limits,
                    )
                    yield from self._blocks("on-chip", plan, shape, rows)

    def _clusters(self, size: int, most: int) -> Iterator[Candidate]:
        """Yield plans whose units lie in the registers of several blocks."""
        facts = self.facts
        units = prod(facts.extent(axis) for axis in self.nest.base)
        if size < CLUSTERED or units > CLUSTERS or self.vector in self.nest.base:
            return
        if facts.is_ordered:
            return
        for width in self._widths():
            for held in (8, 16, 32):
                wanted = power_above(-(-size // held))
                shape = self._spread(self.held_axes, wanted, width)
                threads = prod(s.threads for s in shape)
                if _held(shape) > HELD // 2 or shape[0].threads == 1:
                    continue
                for blocks in (2, 4, 8):
                    if blocks > most or not 128 <= threads // blocks <= THREADS_PER_BLOCK:
                        continue
                    limits = tuple((a, facts.extent(a)) for a in self.held_axes)
                    plan = NestPlan(
                        "on-chip",
                        self._grid({}),
                        self._slots(),
                        tuple(self.held_axes),
                        None,
                        limits,
                    )
                    kept = tuple(s for s in shape if s.extent > 1)
                    part = Part(self.nest, plan, ThreadPlan(kept, blocks=blocks))
                    yield Candidate("on-chip, clustered", (part,))

    def streamed(self) -> Iterator[Candidate]:
        """Yield plans whose threads sweep strips and merge their states at the end."""
        facts = self.facts
        if not self.nest.sweeps or self._is_product() or not self._inner_is_short():
            return
        sweep, *followers = self.nest.sweeps
        if any(set(f.axes) & set(sweep.axes) for f in followers):
            return
        whole = [a for a in facts.extra if a in facts.swept or facts.is_short(a)]
        whole += [a for a in facts.inner if a not in whole]
        if not all(facts.is_short(a) for a in whole):
            return
        wide = [a for a in facts.extra if a not in whole]
        column = [a for a in (*self.nest.base, *wide) if a == self.vector]
        rest = [a for a in wide if a not in column]
        swept = [a for a in sweep.axes if a not in whole]
        if not swept or any(facts.extent(a) > SHORT_ROW for a in rest):
            return
        for width in self._widths():
            for lanes in (8, 32) if column else (1,):
                for threads in (32, 64, 128, 256, 512, 1024):
                    for registers in (1, 2, 4, 8, 16):
                        shape = self._strips(swept, threads // lanes, registers, column, width)
                        if shape is None:
                            continue
                        if column:
                            shape.insert(0, Spread(column[0], 1, lanes, width))
                        yield from self._stream(shape, column, swept, [*whole, *rest])

    def maps(self) -> Iterator[Candidate]:
        """Yield plans of a nest without sweeps: every element for itself."""
        if self.nest.sweeps or self.facts.used_inner:
            return
        axes = list(self.nest.base)
        for width in self._widths():
            for threads in BLOCKS:
                for registers in (1, 2, 4):
                    shape = self._tiles(axes, threads, registers, width)
                    grid = self._grid({s.axis: s.extent for s in shape})
                    plan = NestPlan("map", grid, self._slots(), ())
                    yield from self._blocks("map", plan, shape, rows=False)

    def held(self) -> list[Candidate]:
        """Return plans that run anything: tiles in order, each folded across the threads."""
        facts = self.facts
        found: list[Candidate] = []
        # Threads along the sweep, or along what has a result of its own: the products of a tile.
        for threads, across in ((256, True), (128, True), (128, False)):
            axes = unique([*facts.swept, *facts.mapped])
            extra = [a for a in facts.extra if a not in axes]
            inner = [a for a in facts.inner if a not in {*axes, *extra}]
            whole = [a for a in extra if facts.extent(a) <= HELD or a in facts.inner]
            grid = [a for a in extra if a not in whole]
            whole += [a for a in axes if a in facts.extra]
            shape = []
            left = threads
            held = 1
            for axis in whole:
                spread = spread_whole(axis, facts.extent(axis), left, 16 // min(16, held))
                shape.append(spread)
                left //= spread.threads
                held *= spread.count
            outer = [(a, facts.extent(a)) for a in (*self.nest.base, *grid)]
            beside = [] if across else spread_units(outer, left)
            left //= prod(s.threads for s in beside)
            looped = [a for a in axes if a not in whole]
            room = max(1, HELD // held)
            for axis in reversed(looped):
                spread = spread_part(axis, facts.extent(axis), left, min(4, room))
                shape.append(spread)
                left //= spread.threads
                room = max(1, room // spread.count)
            for axis in inner:
                shape.append(Spread(axis, min(4, room, facts.extent(axis))))
                room = max(1, room // shape[-1].count)
            tiles = {s.axis: s.extent for s in shape if s.axis in (*looped, *inner)}
            if across:
                beside = spread_units(outer, left)
                left //= prod(s.threads for s in beside)
            shape += beside
            base = {s.axis: s.extent for s in beside}
            kind: Kind = "single-segment" if self.nest.sweeps else "map"
            plan = NestPlan(
                kind,
                self._grid(base, grid),
                (*tiles.items(), *self._slots()),
                tuple(whole),
                None,
                tuple((a, facts.extent(a)) for a in whole),
            )
            found += self._blocks("held", plan, self._ordered(shape), rows=left > 1)
        return found

    # Pieces -----------------------------------------------------------------------------------

    def _widths(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.width, max(1, self.width // 2))))

    def _slots(self) -> tuple[tuple[str, int], ...]:
        return tuple(self.facts.slots.items())

    def _inner_is_short(self) -> bool:
        return all(self.facts.is_short(axis) for axis in self.facts.inner)

    def _is_product(self) -> bool:
        return bool(self.facts.sides[0])

    def _grid(self, tiles: Mapping[str, int], extra: Sequence[str] = ()) -> tuple[GridAxis, ...]:
        axes = self.facts.program.ordered(frozenset({*self.nest.base, *extra}))
        return tuple(GridAxis(axis, tiles.get(axis, 1)) for axis in axes)

    def _first(self, axes: Sequence[str]) -> str:
        """Return the axis along which neighbouring lanes go: the vector axis, or the last."""
        return self.vector if self.vector is not None and self.vector in axes else axes[-1]

    def _spread(self, axes: Sequence[str], threads: int, width: int) -> list[Spread]:
        """Spread whole extents over threads, the vector axis first; it comes last in the result."""
        facts = self.facts
        vector = self._first(axes)
        order = [vector, *(a for a in reversed(axes) if a != vector)]
        found = []
        left = threads
        for axis in order:
            extent = facts.extent(axis)
            own = width if axis == self.vector else 1
            if axis != vector and facts.is_short(axis):
                found.append(Spread(axis, extent))
                continue
            count = min(left, power_below(-(-extent // own)))
            found.append(Spread(axis, -(-extent // (count * own)), count, own))
            left //= count
        return list(reversed(found))

    def _strips(
        self, swept: Sequence[str], threads: int, registers: int, column: Sequence[str], width: int
    ) -> list[Spread] | None:
        """Spread tiles of swept axes over threads; None where a smaller plan does the same."""
        facts = self.facts
        if threads < 1:
            return None
        vector = self._first(swept)
        order = [vector, *(a for a in reversed(swept) if a != vector)]
        found = []
        left, more = threads, registers
        for axis in order:
            own = width if axis == self.vector and not column else 1
            groups = max(1, -(-facts.extent(axis) // own))
            count = min(left, power_below(groups))
            rounds = min(more, max(1, groups // count))
            found.append(Spread(axis, rounds, count, own))
            left //= count
            more //= rounds
        if left > 1 or more > 1 or prod(s.count for s in found) > HELD:
            return None
        return list(reversed(found))

    def _stream(
        self,
        shape: list[Spread],
        column: Sequence[str],
        swept: Sequence[str],
        whole: Sequence[str],
    ) -> Iterator[Candidate]:
        facts = self.facts
        tiles = {s.axis: s.extent for s in shape if s.axis in swept}
        inner = [Spread(axis, facts.extent(axis)) for axis in whole]
        mapped = [a for a in facts.mapped if a not in tiles]
        for axis in mapped:
            spread = spread_part(axis, facts.extent(axis), 1, 4)
            inner.append(spread)
            tiles[axis] = spread.extent
        if _held([*inner, *shape]) > 2 * HELD:
            return
        segmented = max(swept, key=lambda a: (-(-facts.extent(a) // tiles[a]), a))
        plan = NestPlan(
            "multi-segment",
            self._grid({a: s.extent for a in column for s in shape if s.axis == a}, column),
            (*tiles.items(), *self._slots()),
            tuple(whole),
            segmented,
            tuple((a, facts.extent(a)) for a in whole),
        )
        strips = () if facts.is_ordered else tuple(s.axis for s in shape if s.axis in swept)
        stored = {*facts.swept, *facts.mapped}
        maps = any(set(facts.program.results[n].axes) & stored for n in self.nest.results)
        for across in (False,) if maps else (False, True):
            if across and -(-facts.extent(segmented) // tiles[segmented]) < 2:
                continue
            name = "streamed by blocks" if across else "streamed"
            for made in self._blocks(name, plan, [*inner, *shape], rows=not column):
                (part,) = made.parts
                if across and part.threads.units > 1:
                    continue
                threads = replace(part.threads, strips=strips)
                if across:
                    # All blocks run at once: the compiler must keep to the registers for that.
                    threads = replace(threads, min_blocks=self._resident(threads))
                yield Candidate(name, (replace(part, threads=threads, across=across),))

    def _resident(self, threads: ThreadPlan) -> int:
        """Return how many blocks of a shared sweep an SM should hold at once."""
        words = 2 if self.facts.element_work.double else 1
        held = words * prod(s.count for s in threads.spreads)
        states = words * sum(len(s.states) for s in self.nest.sweeps)
        wanted = held + 2 * states
        registers = 64 if wanted <= 32 else 128 if wanted <= 64 else 255
        return max(1, REGISTERS // (registers * threads.threads))

    def _tiles(self, axes: Sequence[str], threads: int, registers: int, width: int) -> list[Spread]:
        """Spread tiles of the innermost axes of a map over a block's threads."""
        facts = self.facts
        vector = self._first(axes) if axes else ""
        order = [vector, *(a for a in reversed(axes) if a != vector)] if axes else []
        found = []
        left = threads
        for axis in order:
            own = width if axis == self.vector else 1
            groups = max(1, -(-facts.extent(axis) // own))
            count = min(left, power_above(groups))
            rounds = registers if axis == vector and groups >= registers * count else 1
            if count * own * rounds > 1:
                found.append(Spread(axis, rounds, count, own))
            left //= count
        return list(reversed(found))

    def _ordered(self, shape: Sequence[Spread]) -> list[Spread]:
        """Return spreads with the vector axis last: neighbouring lanes go along it."""
        return sorted(shape, key=lambda s: s.axis == self.vector)

    def _blocks(
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


SHORT_ROW = 16


def _held(shape: Sequence[Spread]) -> int:
    return prod(s.count for s in shape)
