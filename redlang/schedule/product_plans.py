"""Plans of products that are swept along what they contract: tiles of results, filled step by step.

    sum[k](a * b)        rows of the one side, columns of the other; both come tile by tile of k

Both sides' own axes are cut among blocks. A side that is computed holds the rows, since it passes
through registers; else rows and columns are such that neighbours in the result are columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from redlang.ir.incremental import Partial, Sweep
from redlang.ir.loops import GridAxis
from redlang.ir.program import Expr, Load, Program
from redlang.ir.types import BF16, F16, F32, F64, I8, U8, DType
from redlang.schedule.contract import split_product
from redlang.schedule.device import Device
from redlang.schedule.facts import Facts, power_above
from redlang.schedule.fragments import GROUP_ROWS, LINE_ALIGNMENT, STEP
from redlang.schedule.matrices import MatrixPlan, MatrixUnitName
from redlang.schedule.matrix_segments import work_of
from redlang.schedule.narrow import CONVERTED_TILES, EIGHT_BITS, converting_clocks, is_part
from redlang.schedule.pairings import PAIRED, pairing_of
from redlang.schedule.plan import NestPlan

LINE = 64
"""Elements of the contracted axis in a tile: lines of 128 bytes."""
SHORT = (F16, BF16)
BYTES = (I8, U8)
"""Integers whose products tensor cores add up exactly, in 32 bits."""
DEPTH = 1 << 15
"""Products of them that 32 bits hold the sum of, whatever they are: 2^15 * 255^2 < 2^31."""
WIDTHS = (256, 192, 128, 96, 64, 48, 32, 16)
"""Columns of a tile."""
ACCUMULATORS = 256
"""Columns of all products of a tile together: registers hold two for each of a thread's."""
PORTABLE: dict[MatrixUnitName, float] = {"mma": 900.0, "tf32": 450.0, "fma": 100.0}
"""Multiply-adds of an SM in a clock, as expected of plans without warp groups."""
DOUBLE = 0.8
"""The share of its multiply-adds of f64 that an SM reaches."""
MOST_ACCUMULATED = 32 * 128 * 4
"""Bytes of a warp's accumulators, of all its products."""
WIDE = 32
"""What the columns of plans without warp groups are padded to."""
STAGES = 5
"""Tiles of each operand in flight, at most."""
FEWEST = 1 << 15
"""Multiply-adds of a unit below which threads do them one by one."""
BARRIER_BYTES = 2048
L2_BYTES = 36.0
"""Bytes that one SM gets from the L2 cache in a clock, while all of them ask."""
PRODUCTS = 1600.0
"""Multiply-adds of an SM in a clock, as reached."""
CLOCKS_PER_US = 1700.0
LONGEST = 1 << 13
"""Elements that are summed up tile by tile at most: the error of a longer sum shows."""
COMPUTED_CLOCKS = 490 / 128
LOADED_CLOCKS = 4000 / 128
"""What a row of a computed operand adds to a tile, which comes by tensor copies or by loads."""
CACHED = 1 << 23
"""Elements of f32 that the L2 cache keeps for those who load them."""
FASTEST_US = 0.15
"""A tile of the contracted axis, however small."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the products of a nest look like.

    Attributes:
        rows: Axes of rows, slowest first.
        column: The axis of columns.
        loops: The contracted axis of each sweep.
        lefts: Operands with rows, of all loops.
        rights: Operands with columns.
        products: Products, each with accumulators of its own.
        computed: Whether a side with rows is computed.
        instructions: Of pairs that are no products, for each element of the loop.
        loaded: Whether it is computed from what threads load element by element.
        integers: Whether products are of integers of 8 bits.
        dtype: What they add up in; of integers what their sums become.
        narrow: Whether operands with columns are of 8 bits, and converted in shared memory.
    """

    rows: tuple[str, ...]
    column: str
    loops: tuple[str, ...]
    lefts: int
    rights: int
    products: int
    computed: bool
    instructions: int = 0
    loaded: bool = False
    integers: bool = False
    dtype: DType = F32
    narrow: bool = False

    @property
    def line(self) -> int:
        """Return the elements of the contracted axis in a tile."""
        return 2 * LINE if self.integers else LINE


def product_shape(
    facts: Facts,
    stored: tuple[DType, ...] = SHORT,
    *,
    paired: bool = False,
    integers: bool = False,
    narrow: bool = False,
) -> Shape | None:
    """Return the shape of a nest's products; None if it has others.

    Args:
        facts: Of the nest.
        stored: What the arrays of its products hold.
        paired: Whether reductions over pairs may be among them, whatever their arrays hold.
        integers: Whether they are sums of integers, exact in 32 bits.
        narrow: Whether operands with columns have 8 bits.
    """
    columned = EIGHT_BITS if narrow else stored
    nest = facts.nest
    if not nest.sweeps or facts.used_inner or facts.mapped or facts.slots:
        return None
    if any(len(sweep.axes) != 1 for sweep in nest.sweeps):
        return None
    rows, columns = set[str](), set[str]()
    lefts, rights, products, instructions = set[Expr](), set[Expr](), 0, 0
    folded: list[Partial] = []
    kinds = set[DType]()
    for sweep in nest.sweeps:
        every = list(_made(facts, sweep, paired=paired, integers=integers))
        found = [made for _, made in every if made is not None]
        if not found:
            return None
        folded += [step for step, made in every if made is None]
        kinds |= {step.types[0].dtype for step, made in every if made is not None}
        for made in found:
            found_in = made.stored or (*stored, *columned)
            left, right = _ordered(facts, made.sides, found_in)
            lefts.update(left)
            rights.update(right)
            if made.instructions and facts.extent(sweep.axes[0]) > LONGEST:
                return None
            # Pairs are joined to what there is in registers of their own.
            products += 2 if made.instructions else 1
            instructions += made.instructions
            if not all(is_part(facts.program, side, made.stored or columned) for side in right):
                return None
            # What takes no part is 0 in the operand that registers hold.
            if not made.shown <= _axes(left):
                return None
            if made.shown and is_part(facts.program, left[0], found_in):
                return None
            own, other = _axes(left) - _axes(right), _axes(right) - _axes(left)
            # Batches are on both sides, and neither rows nor columns.
            if (own & columns) or (other & rows):
                return None
            rows |= own
            columns |= other
    if not rows or not columns or not set(facts.extra) <= rows | columns or len(kinds) > 1:
        return None
    if any(set(axes) & columns for step in folded for axes in _axes_of(step)):
        return None
    order = facts.program.ordered(frozenset(columns))
    column = max(order, key=lambda a: (min(facts.extent(a), LINE), order.index(a)))
    loops = tuple(sweep.axes[0] for sweep in nest.sweeps)
    ordered = tuple(facts.program.ordered(frozenset(rows)))
    # What is folded beside them would take integers in registers.
    if integers and (folded or max(facts.extent(loop) for loop in loops) > DEPTH):
        return None
    parts = (*stored, *PAIRED) if paired else stored
    computed = [left for left in lefts if not is_part(facts.program, left, parts)]
    loaded = any(
        set(node.type.axes) & rows and not _is_copied(facts.program, node, parts, loops, rows)
        for node in facts.loads_of(computed)
    ) or any(set(axes) & rows and facts.size(axes) > CACHED for axes in facts.imported(computed))
    if integers and computed:
        return None
    # What the caller stored in more bits is not rounded for an operand of 8 bits.
    if narrow and any(
        set(node.type.axes) & rows and not is_part(facts.program, node, (*stored, *EIGHT_BITS))
        for node in facts.loads_of(computed)
    ):
        return None
    return Shape(
        ordered,
        column,
        loops,
        len(lefts),
        len(rights),
        products,
        bool(computed),
        instructions,
        loaded,
        integers,
        kinds.pop(),
        narrow,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A product or a reduction over pairs.

    Attributes:
        sides: What it is made of.
        stored: What its arrays may hold; nothing if that is the unit's affair.
        instructions: What a pair takes; 0 for a product.
        shown: Axes of the condition under which elements take part in a product.
    """

    sides: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    stored: tuple[DType, ...] = ()
    instructions: int = 0
    shown: frozenset[str] = frozenset()


def _made(
    facts: Facts, sweep: Sweep, *, paired: bool, integers: bool = False
) -> Iterator[tuple[Partial, _Made | None]]:
    """Yield the reductions of a sweep, and what they are as products or over pairs."""
    for step in sweep.update:
        if not isinstance(step, Partial):
            continue
        product = None
        if step.op == "sum":
            product = split_product(step, sweep, facts.program, facts.pointwise, integers=integers)
        if product is not None:
            shown = frozenset(() if step.condition is None else step.condition.type.axes)
            yield step, _Made(((product.left,), (product.right,)), shown=shown)
            continue
        pairing = pairing_of(step, sweep, facts.pointwise) if paired else None
        if pairing is None:
            yield step, None
        else:
            yield step, _Made((pairing.lefts, pairing.rights), PAIRED, pairing.instructions)


def _axes(side: Iterable[Expr]) -> frozenset[str]:
    return frozenset(axis for expr in side for axis in expr.type.axes)


def _axes_of(step: Partial) -> Iterator[tuple[str, ...]]:
    """Yield the axes of what is folded beside products."""
    yield from (value.type.axes for value in step.values)
    if step.condition is not None:
        yield step.condition.type.axes


def _ordered(
    facts: Facts,
    sides: tuple[tuple[Expr, ...], tuple[Expr, ...]],
    stored: tuple[DType, ...],
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return a product's sides, that of the rows first."""
    first, second = sides
    short = [is_part(facts.program, side[0], stored) for side in sides]
    if short[0] != short[1]:
        return (second, first) if short[0] else (first, second)
    results = [facts.program.results[n].axes for n in facts.nest.results]
    last = {axes[-1] for axes in results if axes}
    own = _axes(first) - _axes(second)
    return (second, first) if own & last else (first, second)


def _is_copied(
    program: Program,
    load: Load,
    stored: tuple[DType, ...],
    loops: tuple[str, ...],
    rows: set[str],
) -> bool:
    """Say whether tensor copies bring what a side is computed from, by element types and axes."""
    array = program.array(load.array)
    if array.dtype.bits == 8:
        return array.axes[-1] in loops
    return array.axes[-1] in {*loops, *rows} and is_part(program, load, stored)


def product_plans(facts: Facts, shape: Shape, device: Device) -> Iterator[MatrixPlan]:
    """Yield plans, the best one by the model first, then such as ask for fewer registers."""
    work = facts.size(shape.rows) * facts.extent(shape.column)
    if work * max(facts.extent(loop) for loop in shape.loops) < FEWEST:
        return
    widest = -(-facts.extent(shape.column) // STEP) * STEP
    most = max(STEP, ACCUMULATORS // shape.products // STEP * STEP)
    if shape.narrow:
        # Wider tiles wait for their conversion: at 256 columns, 116 us for 88 at 128.
        most = min(most, LINE_ALIGNMENT)
    widths = [w for w in WIDTHS if w <= min(widest, most)] or [STEP]
    widths += [w for w in (power_above(widest),) if widest not in widths and w <= most]
    plans = []
    for groups in (2, 1):
        rows = _rows(facts, shape, groups * GROUP_ROWS)
        for width in widths:
            plan = _fitted(facts, shape, rows, width, device)
            plans.append((plan_time(facts, shape, plan, device), plan))
    plans.sort(key=lambda pair: pair[0])
    yield plans[0][1]
    for width in (128, 64):
        for _, plan in plans:
            if plan.width(shape.column) <= width and plan != plans[0][1]:
                yield plan
                break


def _rows(facts: Facts, shape: Shape, wanted: int) -> tuple[tuple[str, int], ...]:
    """Return row axes with their tiles: the last one, and the one before where that is short."""
    *others, last = shape.rows
    if not others or facts.extent(last) >= wanted:
        return ((last, wanted),)
    tile = min(GROUP_ROWS, power_above(facts.extent(last)))
    left = wanted // tile
    return ((others[-1], left), (last, tile)) if left > 1 else ((last, tile),)


def _fitted(
    facts: Facts, shape: Shape, rows: Sequence[tuple[str, int]], width: int, device: Device
) -> MatrixPlan:
    """Return a plan with as many stages as shared memory holds."""
    tall = prod(tile for _, tile in rows)
    line = -(-width // LINE) * LINE if width > STEP * 2 else width
    results = [facts.program.results[n] for n in facts.nest.results]
    staged = any(result.dtype in (F16, BF16) for result in results)
    each = (tall * shape.lefts + line * shape.rights) * LINE * 2
    room = device.sm.shared_bytes_per_block - BARRIER_BYTES
    blocks = 1
    if shape.narrow:
        blocks = 2 if tall == GROUP_ROWS else 1
        made = CONVERTED_TILES * line * shape.rights * LINE * 2
        each = (2 * tall * shape.lefts + line * shape.rights) * LINE
        room = min(room, device.sm.shared_bytes // blocks - BARRIER_BYTES) - made
    out = tall * line * 2
    if staged and (room - out) // each < 3:
        staged = False
    stages = max(1, min(STAGES, (room - (out if staged else 0)) // each))
    columns = ((shape.column, width), *((a, shape.line) for a in dict.fromkeys(shape.loops)))
    clocks = step_clocks(tall, width) * shape.products / len(shape.loops)
    if shape.narrow:
        clocks = max(clocks * blocks, converting_clocks(tall, width, blocks))
    if shape.computed:
        clocks += tall * (LOADED_CLOCKS if shape.loaded else COMPUTED_CLOCKS)
    each_us = max(FASTEST_US, clocks / CLOCKS_PER_US)
    # Where there is one tile of rows, every tile of columns comes from memory, not from the cache.
    size = 1 if shape.narrow else 2
    read = width * LINE * size if facts.size(shape.rows) <= tall else 0
    return MatrixPlan(
        tuple(rows),
        columns,
        stages,
        blocks,
        persistent=True,
        staged=staged,
        fetched=True,
        converts=shape.narrow,
        tile_us=each_us,
        tile_bytes=read,
    )


def plan_time(facts: Facts, shape: Shape, plan: MatrixPlan, device: Device) -> float:
    """Return the time of a plan, cut into segments if that helps."""
    nest_plan = product_nest_plan(facts, shape, plan)
    first, *others = shape.loops
    work = work_of(plan, nest_plan, first, facts.extents, device)
    more = sum(-(-facts.extent(loop) // shape.line) for loop in others)
    work = replace(work, tiles=work.tiles + more)
    return work.time_us(work.best if not others else 1)


def step_clocks(rows: int, columns: int) -> float:
    """Return the clocks of one tile of the contracted axis."""
    return max(rows * columns / PRODUCTS, (rows + columns) * 2 / L2_BYTES) * LINE


def portable_product_plans(
    facts: Facts, shape: Shape, device: Device, unit: MatrixUnitName
) -> Iterator[MatrixPlan]:
    """Yield plans without warp groups and tensor copies."""
    work = facts.size(shape.rows) * facts.extent(shape.column)
    if work * max(facts.extent(loop) for loop in shape.loops) < FEWEST:
        return
    if min(facts.size(shape.rows), facts.extent(shape.column)) < STEP:
        return
    dtype = shape.dtype
    size = 2 if unit == "mma" else dtype.bytes
    depth = LINE_ALIGNMENT // size
    widest = -(-facts.extent(shape.column) // WIDE) * WIDE
    rate = PORTABLE["fma" if shape.instructions else unit]
    if dtype is F64:
        rate = DOUBLE * device.sm.double
    for warp_rows, width in ((32, 128), (32, 64), (16, 64), (16, 32)):
        tall = 4 * warp_rows
        last = (warp_rows, width) == (16, 32)
        if width * warp_rows * shape.products * dtype.bytes > MOST_ACCUMULATED or (
            width > widest and not last
        ):
            continue
        tiles = {shape.column: width, shape.rows[-1]: tall}
        axes = (*facts.nest.base, *facts.extra)
        units = prod(-(-facts.extent(axis) // tiles.get(axis, 1)) for axis in axes)
        if units < device.sms and not last:
            continue
        each = (tall * shape.lefts + width * shape.rights) * depth * size
        room = device.sm.shared_bytes // 2 - BARRIER_BYTES
        stages = max(2, min(4, room // each))
        loops = tuple((loop, depth) for loop in dict.fromkeys(shape.loops))
        wides = ((shape.column,), ()) if unit == "fma" and not shape.instructions else ((),)
        each_us = max(2, 2 * shape.instructions) * tall * width * depth / CLOCKS_PER_US
        for wide in wides:
            yield MatrixPlan(
                _rows(facts, shape, tall),
                ((shape.column, width), *loops),
                stages,
                2,
                unit=unit,
                warp_rows=warp_rows,
                wide=wide,
                tile_us=each_us / rate,
                dtype=dtype,
            )


def product_nest_plan(facts: Facts, shape: Shape, plan: MatrixPlan) -> NestPlan:
    """Return what a plan means for its nest."""
    tiles = dict((*plan.rows, (shape.column, plan.width(shape.column))))
    axes = facts.program.ordered(frozenset({*facts.nest.base, *facts.extra}))
    grid = tuple(GridAxis(axis, tiles.get(axis, 1)) for axis in axes)
    loops = tuple((loop, plan.width(loop)) for loop in dict.fromkeys(shape.loops))
    return NestPlan("single-segment", grid, loops, (), integers=shape.integers)
