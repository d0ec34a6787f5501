"""Choose a CPU plan: what fits the caches stays there, what does not streams past once.

Extents enter only through classes (fits or not, tile buckets), so that few plans serve all lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from redlang.ir import walk
from redlang.ir.incremental import Partial, Sweep
from redlang.ir.loops import GridAxis
from redlang.ir.program import Expr, Load, Program, Reduce
from redlang.schedule.contract import split_product
from redlang.schedule.nests import Nest, are_alike, detached
from redlang.schedule.plan import Kind, NestPlan, Plan
from redlang.schedule.uses import Uses

# Half of a 1 MiB L2 (the smallest of current server cores): the rest is for inputs passing by.
ON_CHIP_BYTES = 1 << 19
# Rows that are stored again: what is computed once and read back from L2 or L3 (2 MiB a core on
# current servers) beats computing it twice.
NEAR_BYTES = 1 << 21
# A tile of this many f32 leaves room for a few of its kind in a 32 KiB L1.
STREAM_TILE = 2048
# Steps along a swept axis while another axis runs through memory.
STRIDED_TILE = 32
# Columns of a unit: where they stay on chip, and where rows run past, which memory wants whole.
COLUMNS = 256
PASSING_COLUMNS = 4096
CONTRACT_ROWS = 64
CONTRACT_STREAM = 128
RESIDENT_COLUMNS = 256
# From this many elements inside on, a step along a swept axis is worth a tile of its own.
HEAVY_ELEMENTS = 1024
# An inner sweep of this many elements is one tile.
HELD = 1024
# Below this many elements a segment costs more to merge than it saves.
SEGMENT_ELEMENTS = 1 << 15
MAX_SEGMENTS = 16
# Sums joined one after another, of tiles or of blocks of them; a tile's own sum is blocked too, so
# that the error of 2^31 terms stays below (64 + 31) units in the last place.
MAX_JOINS = 32


@dataclass(frozen=True, slots=True)
class Choice:
    """Nests in the form that the plan runs them, with the plan."""

    nests: tuple[Nest, ...]
    plan: Plan


def choose_plan(
    program: Program,
    fused: tuple[Nest, ...],
    separate: tuple[Nest, ...],
    extents: Mapping[str, int],
    unit: Mapping[str, str | None] | None = None,
) -> Choice:
    """Return the plan for these extents.

    Args:
        program: The normalised program.
        fused: Its nests with incremental sweeps.
        separate: The same nests with one sweep a dependent stage, for on-chip plans; a different
            grouping is ignored.
        extents: Extents of this call.
        unit: The axis along which each array has stride 1; left out, arrays are row-major.
    """
    alike = are_alike(fused, separate)
    nests, plans = [], []
    for number, nest in enumerate(fused):
        chooser = _Chooser(program, nest, separate[number] if alike else None, extents, unit or {})
        for chosen, plan in chooser.cut() or [chooser.choose()]:
            nests.append(chosen)
            plans.append(plan)
    return Choice(tuple(nests), Plan(tuple(plans)))


def segment_count(plan: NestPlan, extents: Mapping[str, int]) -> int:
    """Return into how many segments the cut axis goes; it depends on extents only (K6)."""
    assert plan.segmented is not None
    axes = {*(axis for axis, _ in plan.tiles), *plan.resident} - {plan.segmented}
    others = prod(extents[a] for a in axes if a in extents)
    length = extents[plan.segmented]
    tiles = -(-length // plan.tile(plan.segmented))
    return max(1, min(MAX_SEGMENTS, tiles, length * max(others, 1) // SEGMENT_ELEMENTS))


class _Chooser:
    """Facts about one nest at given extents."""

    def __init__(
        self,
        program: Program,
        nest: Nest,
        separate: Nest | None,
        extents: Mapping[str, int],
        unit: Mapping[str, str | None],
    ) -> None:
        self.program = program
        self.unit = unit
        self.nest = nest
        self.separate = separate
        self.extents = extents
        self.uses = Uses(program, (*nest.sweeps, *nest.inner))
        self.all_axes = frozenset[str]().union(*map(self.uses.all_axes, nest.sweeps))
        self.swept = _unique(axis for sweep in nest.sweeps for axis in sweep.axes)
        self.inner = _unique(axis for sweep in nest.inner for axis in sweep.axes)
        self.extra = [a for a in program.ordered(self.all_axes) if a not in nest.base]
        stored = _unique(axis for n in nest.results for axis in program.results[n].axes)
        self.mapped = [a for a in stored if a not in nest.base and a not in self.extra]
        # The slots of a top-k list are few, and no axis of the data.
        self.slots = {d.value.new_axis for d in program.definitions if isinstance(d.value, Reduce)}
        self.sides = self._contraction_sides()
        self.rows = frozenset[str]().union(*self.sides)

    def cut(self) -> list[tuple[Nest, NestPlan]]:
        """Return the nest with results along a swept axis in nests of their own, if that pays.

        A row that is cut among units has its result only when they are merged; what is stored
        along the row then runs over as many units again.
        """
        along = {
            n
            for n in self.nest.results
            if not set(self.swept).isdisjoint(self.program.results[n].axes)
        }
        if not along or self.rows:
            return []
        parts = detached(self.program, self.nest, frozenset(along))
        found = [
            _Chooser(self.program, part, None, self.extents, self.unit).choose() for part in parts
        ]
        plan = found[0][1]
        units = prod(-(-self.extents[g.axis] // g.tile) for g in plan.grid)
        work = prod(self.extents[a] for a in _unique([*self.swept, *self.nest.base]))
        if plan.kind != "multi-segment" or work < 4 * SEGMENT_ELEMENTS:
            return []
        # One unit after the other is better off where a row stays in a cache.
        return found if units == 1 or self._kind() != "on-chip" else []

    def choose(self) -> tuple[Nest, NestPlan]:
        """Return the nest in its chosen form, and its plan."""
        kind = self._kind()
        extra_grid = [a for a in self.extra if self._extra_in_grid(a)]
        resident = [a for a in self.extra if a not in extra_grid]
        looped = [a for a in (*self.swept, *self.mapped, *self.inner) if a not in self.nest.base]
        tiles: dict[str, int] = {}
        for axis in _unique(looped):
            if axis in self.extra:
                continue
            if (kind == "on-chip" and axis in self.swept) or (
                axis in self.inner and axis not in self.swept and self._held(axis)
            ):
                resident.append(axis)
            else:
                tiles[axis] = self._stream_tile(axis)
        grid = tuple(
            GridAxis(a, self._grid_tile(a, kind))
            for a in self.program.ordered({*self.nest.base, *extra_grid})
        )
        segmented = self._segmented(kind, grid, tiles)
        if segmented is not None:
            kind = "multi-segment"
        form = self.separate if kind == "on-chip" and self.separate is not None else self.nest
        blocks = self._blocks(form, tiles, segmented)
        return form, NestPlan(
            kind, grid, tuple(tiles.items()), tuple(resident), segmented, blocks=blocks
        )

    def _blocks(
        self, form: Nest, tiles: Mapping[str, int], segmented: str | None
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return blocks for axes with many tiles: sums of floats are joined in a tree."""
        if self.rows:
            # Contractions are accumulated as a library does.
            return ()
        found: dict[str, tuple[int, ...]] = {}
        for sweep in form.sweeps:
            joins = 1
            for axis in reversed(sweep.axes if _sums_floats(sweep) else ()):
                size = tiles.get(axis, self.extents[axis])
                count = _power_above(-(-self.extents[axis] // max(size, 1)))
                count = max(1, count // MAX_SEGMENTS) if axis == segmented else count
                sizes: list[int] = []
                while joins * count > MAX_JOINS and count > 1:
                    step = max(1, MAX_JOINS // joins)
                    size, count, joins = size * step, -(-count // step), 1
                    sizes.append(size)
                joins *= count
                found[axis] = max(found.get(axis, ()), tuple(sizes), key=len)
        return tuple((axis, sizes) for axis, sizes in found.items() if sizes)

    def _kind(self) -> Kind:
        if not self.nest.sweeps:
            return "map"
        passes = len(self.nest.sweeps if self.separate is None else self.separate.sweeps)
        again = any(a in self.swept for a in self.mapped)
        passes += again
        row = prod(self.extents[a] for a in _unique([*self.swept, *self.mapped]))
        near = NEAR_BYTES if again else ON_CHIP_BYTES
        fast = self._fast_axis()
        columns = min(self.extents[fast], COLUMNS) if fast in self.nest.base else 1
        fits = 8 * row * columns * prod(self.extents[a] for a in self.extra) <= near
        # What is computed anew for each element of a sweep is computed once by one sweep too.
        streams = len(self.nest.sweeps) == 1 and any(
            self._inner_work(axis) >= HEAVY_ELEMENTS for axis in self.swept
        )
        if passes > 1 and fits and not self.rows and not (streams and not self.mapped):
            return "on-chip"
        return "single-segment"

    def _extra_in_grid(self, axis: str) -> bool:
        must_stay = axis in self.swept or axis in self.inner
        behind = self.extra[self.extra.index(axis) :]
        kept = prod(self.extents[a] for a in behind)
        return not must_stay and (self.extents[axis] > RESIDENT_COLUMNS or kept > STREAM_TILE)

    def _held(self, axis: str) -> bool:
        """Tell whether an axis of inner sweeps is short enough to be one tile."""
        groups = self._together(axis) if self.rows else [[axis]]
        return all(prod(self.extents[a] for a in group) <= HELD for group in groups)

    def _contraction_sides(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the axes that are rows, and those that are columns, of contractions here."""
        rows, columns = set[str](), set[str]()
        definitions = {n: d.value for d in self.program.definitions for n in d.names}

        def pointwise(name: str) -> Expr | None:
            value = definitions.get(name)
            return None if isinstance(value, Reduce) else value

        for sweep in (*self.nest.sweeps, *self.nest.inner):
            for step in sweep.update:
                if isinstance(step, Partial) and step.op == "sum":
                    pair = split_product(step, sweep, self.program, pointwise)
                    if pair is not None:
                        a, b = (set(side.type.axes) for side in (pair.left, pair.right))
                        # An axis keeps the side that it was first seen on.
                        first, second = (a - b, b - a) if not (a - b) & columns else (b - a, a - b)
                        rows |= first - columns
                        columns |= second - rows
        return frozenset(rows), frozenset(columns)

    def _stream_tile(self, axis: str) -> int:
        if self.rows:
            return min(self._contract_tile(axis, group) for group in self._together(axis))
        looped = [a for a in _unique([*self.swept, *self.mapped]) if a not in self.extra]
        order = [a for a in looped if a not in self.slots]
        fast_in_grid = self._fast_axis() in self.nest.base
        if axis in order[:-1]:
            return STRIDED_TILE if fast_in_grid and axis in order[-2:] else 1
        if fast_in_grid:
            return STRIDED_TILE
        work = self._inner_work(axis) if axis in self.swept else 1
        if work >= STRIDED_TILE:
            if axis in self._inner_fast_axes():
                # Shorter pieces of rows keep the memory from running ahead.
                return STREAM_TILE // 2
            return 1 if work >= HEAVY_ELEMENTS else STRIDED_TILE
        kept = prod(self.extents[a] for a in self.extra)
        return max(STRIDED_TILE, STREAM_TILE // _power_above(max(kept, 1)))

    def _together(self, axis: str) -> list[list[str]]:
        """Return the axes that are looped over at once with `axis`: of each sweep, of a store."""
        fixed = {*self.nest.base, *self.extra}
        sweeps = (*self.nest.sweeps, *self.nest.inner)
        groups = [list(sweep.axes) for sweep in sweeps] + [self.mapped]
        return [[a for a in group if a not in fixed] for group in groups if axis in group]

    def _contract_tile(self, axis: str, together: list[str]) -> int:
        """Return the tile of an axis of contractions; those of one loop nest share it.

        Computed operands lie in scratch over all their tiles at once. The tile of an axis alone is
        the same for all extents, so that lengths share code.
        """
        room = CONTRACT_STREAM if not self.rows.isdisjoint(together) else 2 * RESIDENT_COLUMNS
        return room if len(together) == 1 else share(axis, together, room, self.extents)

    def _grid_tile(self, axis: str, kind: Kind) -> int:
        if axis in self.extra and (self.rows or axis != self._fast_axis()):
            columns = {a: min(self.extents[a], RESIDENT_COLUMNS) for a in self.extra}
            return share(axis, self.extra, STREAM_TILE, columns)
        if self.rows:
            side = next((side for side in self.sides if axis in side), frozenset[str]())
            budget = CONTRACT_ROWS
            for other in reversed([a for a in self.nest.base if a in side]):
                tile = min(budget, _row_class(self.extents[other]))
                if other == axis:
                    return tile
                budget = max(1, budget // tile)
            return 1
        fast = self._fast_axis()
        if axis == fast:
            # Lists, and what else is kept for each column, take room.
            kept = self.extra or self.inner or self.slots - {None}
            long = prod(self.extents[a] for a in self.swept) > 2 * STRIDED_TILE
            passing = kind == "single-segment" and long and not kept
            width = PASSING_COLUMNS if passing else COLUMNS
            return width if self.extents[axis] > 16 else 16
        if fast in self.nest.base or not self.nest.base or axis != self.nest.base[-1]:
            return 1
        row = prod(self.extents[a] for a in _unique([*self.swept, *self.mapped]))
        return 64 if row <= 64 else 8 if row <= STREAM_TILE else 1

    def _fast_axis(self) -> str | None:
        """Return the axis along which most of the nest's loads have unit stride."""
        votes: dict[str, int] = {}
        for sweep in (self.separate or self.nest).sweeps:
            for expr in dict.fromkeys(_loads(self.program, sweep)):
                axis = self._adjacent(expr)
                if axis is not None and axis in expr.type.axes:
                    # A gather happens as often as its subscripts have values together.
                    votes[axis] = votes.get(axis, 0) + len(expr.type.axes)
        if not votes:
            return self.nest.base[-1] if not self.nest.sweeps and self.nest.base else None
        return max(votes, key=lambda axis: votes[axis])

    def _adjacent(self, load: Load) -> str | None:
        """Return the axis along which an array's neighbours are neighbours in memory."""
        axes = self.program.array(load.array).axes
        return self.unit.get(load.array) or (axes[-1] if axes else None)

    def _inner_work(self, axis: str) -> int:
        """Return how many elements each step along `axis` takes in the sweeps inside."""
        axes = {
            a for sweep in self._inside() if axis in self.uses.all_axes(sweep) for a in sweep.axes
        }
        return prod(self.extents[a] for a in axes - {axis})

    def _inner_fast_axes(self) -> frozenset[str]:
        """Return the axes along which loads of the sweeps inside have unit stride."""
        loads = [load for sweep in self._inside() for load in _loads(self.program, sweep)]
        axes = (self._adjacent(load) for load in loads if load.type.axes)
        return frozenset(axis for axis in axes if axis is not None)

    def _inside(self) -> list[Sweep]:
        """Return the sweeps that are evaluated inside those of the nest."""
        found: dict[int, Sweep] = {}
        todo = list(self.nest.sweeps)
        own = {id(sweep) for sweep in todo}
        while todo:
            for sweep in self.uses.read_by(todo.pop()):
                if id(sweep) not in found and id(sweep) not in own:
                    found[id(sweep)] = sweep
                    todo.append(sweep)
        return list(found.values())

    def _segmented(
        self, kind: Kind, grid: tuple[GridAxis, ...], tiles: Mapping[str, int]
    ) -> str | None:
        """Return the axis to cut, where units are few and the swept axes are long."""
        if kind != "single-segment" or any(a in self.swept for a in self.mapped):
            return None
        first, *others = self.nest.sweeps
        units = prod(-(-self.extents[g.axis] // g.tile) for g in grid)
        later = {axis for sweep in others for axis in sweep.axes}
        swept = [a for a in first.axes if a in tiles and a not in later]
        work = prod(self.extents[a] for a in first.axes)
        work *= max((self._inner_work(axis) for axis in swept), default=1)
        if not swept or units > 4 or work < 2 * SEGMENT_ELEMENTS:
            return None
        axis = max(swept, key=lambda a: -(-self.extents[a] // tiles[a]))
        return axis if self.extents[axis] >= 2 * tiles[axis] else None


def _sums_floats(sweep: Sweep) -> bool:
    """Tell whether a sweep has a sum whose joining order matters."""
    partials = [step for step in sweep.update if isinstance(step, Partial)]
    return any(step.op == "sum" and step.types[0].dtype.kind == "float" for step in partials)


def _unique(axes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(axes))


def _row_class(extent: int) -> int:
    """Return a tile for rows of this extent: one of 1, 8 and 64, so that lengths share code."""
    return 1 if extent <= 1 else 8 if extent <= 8 else 64


def share(axis: str, together: list[str], room: int, extents: Mapping[str, int]) -> int:
    """Return the tile of an axis among those whose tiles' product is at most `room`."""
    for other in reversed(together):
        # Powers of two are few, so that lengths share code.
        tile = min(room, _power_above(extents[other]))
        if other == axis:
            return tile
        room = max(1, room // tile)
    return room


def _power_above(extent: int) -> int:
    return 1 << max(0, extent - 1).bit_length()


def _loads(program: Program, sweep: Sweep) -> list[Load]:
    """Return the loads behind the stages of a sweep, through pointwise definitions."""
    values = {n: d.value for d in program.definitions for n in d.names}
    found: list[Load] = []
    todo = [e for stage in sweep.stages for e in walk.expressions(values[stage])]
    seen: set[str] = set()
    while todo:
        expr = todo.pop()
        found.extend(node for node in walk.nodes(expr) if isinstance(node, Load))
        for name in walk.refs(expr) - seen:
            seen.add(name)
            value = values.get(name)
            if value is not None and not isinstance(value, Reduce):
                todo.append(value)
    return found
