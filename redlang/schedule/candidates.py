"""The plans that a GPU nest could run with, as far as they make sense at all.

    rows on chip      the swept slice of a unit lies in the registers of its threads, or of those of
                      a cluster, or, where it is long, in shared memory; memory is read once
    rows streamed     threads keep states of their own over strips, merged when the sweep is over,
                      by one block or by all blocks that share the unit; the loads of some tiles
                      may run ahead of the one that is computed with
    columns           the same, where neighbours in memory belong to different units
    cut               sweeps and maps that no plan keeps together, as nests of their own
    map               no sweep at all
    held              the fallback that runs anything: tiles in order, folded across threads

An extent enters through its class only, so that few plans serve all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from redlang.ir.program import Program
from redlang.schedule.class_plans import by_class
from redlang.schedule.cuts import cut
from redlang.schedule.device import THREADS_PER_BLOCK, WARP
from redlang.schedule.facts import Facts, Layout, power_above, unique
from redlang.schedule.nests import Nest
from redlang.schedule.parts import BLOCKS, HELD, TILE, Candidate, Part, Spreader
from redlang.schedule.plan import Kind, NestPlan
from redlang.schedule.shapes import spread_part, spread_units, spread_whole
from redlang.schedule.threads import Spread, ThreadPlan

IN_SHARED = 112 * 1024
"""Elements of a slice that shared memory may hold: of two bytes, on 9.0; devices say no."""
CLUSTERED = THREADS_PER_BLOCK * 8
"""Elements of a slice from which on several blocks may share it."""
CLUSTERS = 512
"""Units from which on every SM has blocks of its own to run."""
AHEAD = (0, 2, 4)
"""Tiles of a strip whose loads may be under way while one is computed with."""
CROWD = 1024
"""Threads of an SM that have 64 registers each."""
FEW_THREADS = 64
"""Threads of a unit of columns up to which folds between warps cost less than broken lines."""
SHORT_ROW = 16
SQUARE = 128
"""Threads of a map between arrays that lie along two axes."""
ROWS = (4, 8)
"""Rows of a map that share what a thread reads for all of them."""
MANY = 64
"""Units along an axis from which on one may have several rows of it."""


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
    found += by_class(makers[0])
    found += makers[0].maps()
    return list({_identity(c): c for c in [*found, *makers[0].held()]}.values())


def _identity(candidate: Candidate) -> tuple[object, ...]:
    return tuple((id(p.nest), p.plan, p.threads, p.across, p.classes) for p in candidate.parts)


def pieces(
    program: Program, nest: Nest, extents: Mapping[str, int], layout: Layout, cluster: int = 1
) -> list[list[Candidate]]:
    """Return the candidates for each nest that a nest may be cut into; none for one that is whole.

    Args:
        program: The normalised program.
        nest: The nest with incremental sweeps.
        extents: Those of the shape class.
        layout: Of the arrays.
        cluster: The most blocks of a cluster.
    """
    found = cut(Facts(program, nest, extents, layout))
    if len(found) == 1:
        return []
    makers = [Maker(program, piece, extents, layout) for piece in found]
    return [
        [*maker.on_chip(cluster), *maker.streamed(), *maker.maps()] or maker.held()
        for maker in makers
    ]


class Maker(Spreader):
    """Makes the plans of one form of a nest."""

    def on_chip(self, cluster: int) -> Iterator[Candidate]:
        """Yield plans whose units hold all that they sweep over."""
        facts = self.facts
        if not self.nest.sweeps or self.is_product() or not self.inner_is_short():
            return
        size = prod(facts.extent(axis) for axis in self.held_axes if axis not in facts.slots)
        yield from self._clusters(size, cluster)
        yield from self._in_shared(size)
        if size > TILE:
            return
        rows = self.vector not in self.nest.base
        column = [] if rows or self.vector is None else [self.vector]
        for width in self.widths():
            for lanes in (8, 16, 32) if column else (1,):
                for held in (4, 8, 16, 32, 64):
                    each = max(1, held // width) if column else held
                    wanted = min(power_above(-(-size // each)), THREADS_PER_BLOCK // lanes)
                    shape = self.spread(self.held_axes, wanted, 1 if column else width)
                    if column:
                        own = Spread(column[0], 1, lanes, width)
                        few = lanes * prod(s.threads for s in shape) <= FEW_THREADS
                        # Lanes along columns read whole lines; along rows they fold by shuffles.
                        shape = [*shape, own] if few else [own, *shape]
                    unit = prod(s.threads for s in shape)
                    if self.held_by_thread(shape) > (HELD if unit >= WARP else HELD // 2):
                        continue
                    plan = self.whole({column[0]: lanes * width} if column else {})
                    for made in self.blocks("on-chip", plan, shape, rows):
                        (part,) = made.parts
                        threads = self.stored(part.threads) if rows else part.threads
                        yield Candidate("on-chip", (replace(part, threads=threads),))
                    if rows and unit < WARP:
                        yield from self._several_rows(shape)

    def _several_rows(self, shape: Sequence[Spread]) -> Iterator[Candidate]:
        """Yield plans whose units hold some short rows: their loads are on the way together."""
        for axis in self.nest.base[-1:]:
            for rows in (2, 4, 8):
                several = [Spread(axis, 1, 1, rows), *shape]
                if self.held_by_thread(several) <= HELD and self.facts.extent(axis) >= MANY * rows:
                    yield from self.blocks("on-chip", self.whole({axis: rows}), several, rows=True)

    def _in_shared(self, size: int) -> Iterator[Candidate]:
        """Yield plans whose units lie in shared memory, and are read part by part.

        Registers serve what they can hold several units of better: there are no parts.
        """
        facts = self.facts
        results = {a for n in self.nest.results for a in facts.program.results[n].axes}
        again = len(self.nest.sweeps) > 1 or bool(results & {*facts.swept})
        if not again or not TILE // 2 <= size <= IN_SHARED or self.vector in self.nest.base:
            return
        for width in self.widths():
            for held in (16, 32, 64, 128):
                wanted = min(power_above(-(-size // held)), THREADS_PER_BLOCK)
                shape = self.spread(self.held_axes, wanted, width)
                if self.held_by_thread(shape) > 2 * HELD:
                    continue
                for made in self.blocks("on-chip", self.whole({}), shape, rows=True):
                    (part,) = made.parts
                    if self.moves_words(part.threads):
                        blocks = max(1, CROWD // part.threads.threads)
                        threads = replace(part.threads, shared=True, min_blocks=blocks)
                        yield Candidate("on-chip", (replace(part, threads=threads),))

    def _clusters(self, size: int, most: int) -> Iterator[Candidate]:
        """Yield plans whose units lie in the registers of several blocks."""
        facts = self.facts
        units = prod(facts.extent(axis) for axis in self.nest.base)
        if size < CLUSTERED or units > CLUSTERS or self.vector in self.nest.base:
            return
        if facts.is_ordered or facts.used_inner:
            return
        for width in self.widths():
            for held in (8, 16, 32):
                wanted = power_above(-(-size // held))
                shape = self.spread(self.held_axes, wanted, width)
                threads = prod(s.threads for s in shape)
                # Every fold goes over the axis that tells the blocks apart.
                outer = shape[0]
                if self.held_by_thread(shape) > HELD // 2:
                    continue
                if any(outer.axis not in sweep.axes for sweep in self.nest.sweeps):
                    continue
                for blocks in (2, 4, 8):
                    if (
                        blocks > min(most, outer.threads)
                        or not 128 <= threads // blocks <= THREADS_PER_BLOCK
                    ):
                        continue
                    kept = tuple(s for s in shape if s.extent > 1)
                    part = Part(self.nest, self.whole({}), ThreadPlan(kept, blocks=blocks))
                    yield Candidate("on-chip, clustered", (part,))

    def streamed(self) -> Iterator[Candidate]:
        """Yield plans whose threads sweep strips and merge their states at the end."""
        facts = self.facts
        if not self.nest.sweeps or self.is_product() or not self.inner_is_short():
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
        for width in self.widths():
            for lanes in (8, 32) if column else (1,):
                for threads in (32, 64, 128, 256) if column else (32, 64, 128, 256, 512, 1024):
                    for registers in (1, 2, 4, 8, 16):
                        shape = self.strips(swept, threads // lanes, registers, column, width)
                        if shape is None:
                            continue
                        if column:
                            shape.append(Spread(column[0], 1, lanes, width))
                        yield from self._stream(shape, column, swept, [*whole, *rest])

    def maps(self) -> Iterator[Candidate]:
        """Yield plans of a nest without sweeps: every element for itself."""
        if self.nest.sweeps or self.facts.used_inner:
            return
        axes = list(self.nest.base)
        for width in self.widths():
            for threads in BLOCKS:
                for registers in (1, 2, 4):
                    tile = self.tiles(axes, threads, registers, width)
                    for shape in (tile, *self._taller(tile)):
                        grid = self.grid({s.axis: s.extent for s in shape})
                        plan = NestPlan("map", grid, self.slots(), ())
                        yield from self.blocks("map", plan, shape, rows=False)
        yield from self._turned()

    def _taller(self, shape: list[Spread]) -> Iterator[list[Spread]]:
        """Yield tiles of several rows, where a thread reads something for all rows at once."""
        facts, vector = self.facts, self.vector
        shared = [a for a in facts.accesses if not a.written and vector in a.axes]
        lacking = [x for x in self.nest.base if any(x not in a.axes for a in shared)]
        for axis in [x for x in lacking if x != vector and not facts.is_short(x)][-1:]:
            (own,) = [s for s in shape if s.axis == axis] or [Spread(axis)]
            rest = [s for s in shape if s.axis != axis]
            for rows in ROWS:
                taller = [replace(own, registers=rows), *rest]
                fits = own.registers == 1 and facts.extent(axis) >= rows * own.threads
                if fits and self.held_by_thread(taller) <= HELD:
                    yield taller

    def _turned(self) -> Iterator[Candidate]:
        """Yield maps between arrays that lie along two axes: squares of both, in registers.

        A warp has whole sectors of either: several lanes along each axis, neighbours in each lane.
        """
        facts, vector = self.facts, self.vector
        # An array that lacks the vector axis lies along no other: all neighbours share it.
        both = [a for a in facts.accesses if vector in a.axes]
        along = unique([axis for a in both if (axis := facts.run_axis(a)) is not None])
        others = [axis for axis in along if axis != vector and axis in self.nest.base]
        if vector is None or vector not in self.nest.base:
            return
        for other in others[:1]:
            for width in (4, 8):
                for lanes in (4, 8):
                    shape = [
                        Spread(other, 1, SQUARE // lanes, width),
                        Spread(vector, 1, lanes, width),
                    ]
                    grid = self.grid({s.axis: s.extent for s in shape})
                    plan = NestPlan("map", grid, self.slots(), ())
                    yield from self.blocks("turned map", plan, shape, rows=False)

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
            looped = [a for a in axes if a not in whole and a not in facts.slots]
            # Every thread has all of a list.
            shape += [Spread(a, facts.extent(a)) for a in axes if a in facts.slots]
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
                self.grid(base, grid),
                (*tiles.items(), *self.slots()),
                tuple(whole),
                None,
                tuple((a, facts.extent(a)) for a in whole),
            )
            found += self.blocks("held", plan, self.ordered(shape), rows=left > 1)
        return found

    def _aheads(self, threads: ThreadPlan, tiles: Mapping[str, int]) -> tuple[int, ...]:
        """Return how many tiles of a strip may be on their way: few of those that there are."""
        if len(threads.strips) != 1 or not self.moves_words(threads):
            return (0,)
        (axis,) = threads.strips
        if any(a.gathered and axis in a.axes for a in self.facts.accesses):
            # What is read at computed places waits for them, and whoever reads it waits for that.
            return (0,)
        rounds = -(-self.facts.extent(axis) // tiles[axis])
        return tuple(ahead for ahead in AHEAD if 4 * ahead <= rounds)

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
        if self.held_by_thread([*inner, *shape]) > (HELD if column else 2 * HELD):
            return
        segmented = max(swept, key=lambda a: (-(-facts.extent(a) // tiles[a]), a))
        plan = NestPlan(
            "multi-segment",
            self.grid({a: s.extent for a in column for s in shape if s.axis == a}, column),
            (*tiles.items(), *self.slots()),
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
            for made in self.blocks(name, plan, [*inner, *shape], rows=not column):
                (part,) = made.parts
                if across and part.threads.units > 1:
                    continue
                threads = replace(part.threads, strips=strips)
                if across:
                    # All blocks run at once: the compiler must keep to the registers for that.
                    threads = replace(threads, min_blocks=self.resident(threads))
                for ahead in self._aheads(threads, tiles) if not maps and not column else (0,):
                    threads = replace(threads, ahead=ahead)
                    yield Candidate(name, (replace(part, threads=threads, across=across),))
