"""Plans of nests whose products suit the tensor core: rows, columns and stages by shape.

The products of a nest settle what is a row (an axis of the one side that a unit keeps), what is
looped over, and what lies in registers whole. Tiles follow from what registers and shared memory
hold, and from what was measured for short, long and partly absent loops (H200):

    narrow accumulators, short loops    64 rows, two blocks an SM: one fills the other's gaps
    narrow accumulators, long loops     192 rows: operands are read less often
    wide accumulators                   128 rows

Groups take turns where their element work is long beside their products, which narrow products
make it, and where loops end early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from redlang.ir import walk
from redlang.ir.incremental import Partial, Sweep
from redlang.ir.loops import GridAxis
from redlang.ir.program import Apply, Expr, Load, Program
from redlang.ir.types import BF16, F16, F32, F64, DType
from redlang.options import Options
from redlang.schedule.contract import split_product
from redlang.schedule.device import Device
from redlang.schedule.facts import Facts, Layout, power_above
from redlang.schedule.fragments import GROUP_ROWS, LINE_ALIGNMENT, STEP
from redlang.schedule.matrices import MatrixPlan, MatrixUnitName
from redlang.schedule.matrix_segments import segment_count
from redlang.schedule.narrow import CONVERTED_TILES, EIGHT_BITS, is_part
from redlang.schedule.nests import Nest
from redlang.schedule.pairings import PAIRED, Pairing, pairing_of
from redlang.schedule.parts import Candidate, Part
from redlang.schedule.plan import NestPlan
from redlang.schedule.portable_plans import fitted, pair_tilings, tilings
from redlang.schedule.product_plans import (
    BYTES,
    SHORT,
    plan_time,
    portable_product_plans,
    product_nest_plan,
    product_plans,
    product_shape,
)
from redlang.schedule.product_plans import Shape as Products
from redlang.schedule.uses import step_expressions

FAMILY = "matrix tiles"
WIDEST = 256
"""The longest axis that lies in registers or shared memory whole."""
COLUMNS = 128
"""Columns of a loop's tile; more gained nothing."""
NARROWER = (COLUMNS, 112, 96, 64, 48)
"""What is tried after it where element work or several accumulators take more registers."""
PLAIN_ROWS = 16
"""Below them, plain multiply-adds for whole tiles of rows take longer than memory does."""
NARROW = 64
MIDDLE = 96
SHORT_LOOP = 1024
REGISTERS = {1: 188, 2: 188, 3: 128}
"""Registers of a consumer that tiles may take, by warp groups."""
FEW_ROWS = 16
"""Rows that leave the tensor core idle most of the time."""
MASK_REGISTERS = 24
"""Registers that three groups lack for masks, as their producer's group checks operands."""
BARRIER_BYTES = 2048
MOST_STAGES = 4
"""Tiles of 8-bit operands in flight."""
FEW_SPECIAL = 2
"""Special functions an element from which on units that overlap lose more than they gain."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the products of a nest look like.

    Attributes:
        rows: Axes of rows, slowest first.
        loop: The axis that is looped over.
        inner: Axes contracted inside the loop, whole; none where weights are no products.
        columns: Further axes of accumulators, whole.
        masked: Whether the loop has elements that take no part.
        light: Whether there is little work on elements beside their products.
        pairs: Arrays of a side of reductions over pairs, at most; 0 if there are none.
        narrow: Whether operands of 8 bits become 16 bits in shared memory.
        dtype: What products and pairs add up in.
    """

    rows: tuple[str, ...]
    loop: str
    inner: tuple[str, ...]
    columns: tuple[str, ...]
    masked: bool
    light: bool
    pairs: int = 0
    narrow: bool = False
    dtype: DType = F32


def matrix_candidates(
    program: Program,
    nest: Nest,
    extents: Mapping[str, int],
    device: Device,
    options: Options | None = None,
) -> list[Candidate]:
    """Return plans of a nest on matrix tiles, best first; none where they do not suit it.

    Args:
        program: The normalised program.
        nest: The nest with incremental sweeps.
        extents: Those of a call.
        device: What it runs on.
        options: What the user asked for.
    """
    if 0 in extents.values():
        return []
    options = options or Options()
    facts = Facts(program, nest, extents, Layout({}, {}))
    groups = device.capability == "9.0" and options.instructions == "auto"
    found = _plain_products(facts, device, options, groups=groups)
    if found:
        return found
    unit: MatrixUnitName = "tf32" if options.contract == "tf32" else "fma"
    pairs = pairings(facts, facts.used_inner)
    shape = _shape(facts, (F32,), pairs)
    if shape is None and options.contract != "f32":
        unit = "wgmma" if groups and not pairs else "mma"
        shape = _shape(facts, (*SHORT, *(EIGHT_BITS if unit == "wgmma" else ())), pairs)
    shape = shape or _shape(facts, (F64,), pairs)
    if shape is not None and shape.dtype is F64:
        unit = "fma"
    if shape is None or max(facts.extent(a) for a in (*shape.inner, *shape.columns)) > WIDEST:
        return []
    if unit == "fma" and facts.size(shape.rows) < PLAIN_ROWS:
        return []
    every = list(_plans(facts, shape, device)) if unit == "wgmma" else []
    # Arrays that no tensor copy takes still have these.
    if not shape.narrow:
        every += _portable(facts, shape, device, "mma" if unit == "wgmma" else unit)
    plans = dict.fromkeys(every)
    return [
        Candidate(
            FAMILY,
            (_cut(facts, (shape.loop,), _nest_plan(facts, shape, plan), plan, device),),
        )
        for plan in plans
    ]


def _plain_products(
    facts: Facts, device: Device, options: Options, *, groups: bool
) -> list[Candidate]:
    """Return plans of a nest that is products of its own, not inside of a sweep."""
    plans: list[MatrixPlan] = []
    short = options.contract != "f32"
    shape = product_shape(facts) if short else None
    narrow = product_shape(facts, narrow=True) if short and groups else None
    if shape is not None or narrow is not None:
        ways = [
            (way, list(product_plans(facts, way, device)))
            for way in (shape, narrow)
            if way is not None and groups
        ]
        ways = [(way, plans) for way, plans in ways if plans]
        ways.sort(key=lambda pair: plan_time(facts, pair[0], pair[1][0], device))
        # Arrays that no tensor copy takes still have these.
        if shape is not None:
            ways.append((shape, list(portable_product_plans(facts, shape, device, "mma"))))
        return [_product(facts, way, plan, device) for way, plans in ways for plan in plans]
    shape = product_shape(facts, BYTES, integers=True) if groups else None
    if shape is not None:
        plans += product_plans(facts, shape, device)
        return [_product(facts, shape, plan, device) for plan in plans]
    unit: MatrixUnitName = "tf32" if options.contract == "tf32" else "fma"
    others: list[tuple[MatrixUnitName, tuple[DType, ...], bool]]
    others = [(unit, (F32,), False), ("fma", (F32,), True)]
    others += [("mma", (F16, BF16), True)] if short else []
    others += [("fma", (F64,), False), ("fma", (F64,), True)]
    for unit, stored, paired in others:
        shape = product_shape(facts, stored, paired=paired)
        if shape is not None:
            plans += portable_product_plans(facts, shape, device, unit)
            return [_product(facts, shape, plan, device) for plan in plans]
    return []


def _product(facts: Facts, shape: Products, plan: MatrixPlan, device: Device) -> Candidate:
    nest_plan = product_nest_plan(facts, shape, plan)
    return Candidate(FAMILY, (_cut(facts, shape.loops, nest_plan, plan, device),))


def _cut(
    facts: Facts, loops: tuple[str, ...], nest_plan: NestPlan, plan: MatrixPlan, device: Device
) -> Part:
    """Return a plan's part: where units are few, its loop is cut into segments."""
    cut = replace(nest_plan, kind="multi-segment", segmented=loops[0])
    stored = {axis for n in facts.nest.results for axis in facts.program.results[n].axes}
    if nest_plan.integers or len(loops) > 1 or set(loops) & stored:
        return Part(facts.nest, nest_plan, plan.warp(), matrix=plan)
    if segment_count(plan, cut, facts.extents, device) < 2:
        return Part(facts.nest, nest_plan, plan.warp(), matrix=plan)
    plan = replace(plan, persistent=False, staged=False)
    return Part(facts.nest, cut, plan.warp(), across=True, matrix=plan)


def _portable(
    facts: Facts, shape: Shape, device: Device, unit: MatrixUnitName
) -> Iterator[MatrixPlan]:
    """Yield plans without warp groups."""
    columns = {axis: facts.extent(axis) for axis in shape.columns}
    inner = {axis: facts.extent(axis) for axis in shape.inner}
    loop = shape.loop, facts.extent(shape.loop)
    widest = max(padded(n) for n in (*columns.values(), *inner.values()))
    units = facts.size(a for a in facts.nest.base if a not in shape.rows)
    blocks = -(-facts.size(shape.rows) // 128) * units // device.sms
    if facts.size(shape.rows) <= GROUP_ROWS:
        blocks = 0
    ways = tilings(unit, widest, blocks, loop[1], masked=shape.masked)
    for tiling in pair_tilings(unit, blocks) if shape.pairs else ways:
        plan = fitted(
            unit,
            tiling,
            lambda n: _rows(facts, shape, n),
            loop,
            columns,
            inner,
            device,
            arrays=max(1, shape.pairs),
            dtype=shape.dtype,
        )
        if plan is not None:
            yield plan


def _shape(facts: Facts, stored: tuple[DType, ...], paired: Sequence[Pairing] = ()) -> Shape | None:
    if len(facts.nest.sweeps) != 1 or len(facts.swept) != 1:
        return None
    (loop,) = facts.swept
    products = product_pairs(facts)
    copied = [
        side.type.axes
        for pair in products
        for side in pair
        if loop in side.type.axes and is_part(facts.program, side, stored)
    ]
    if products and not copied:
        return None
    copied += [
        load.type.axes
        for pairing in paired
        for _, load in pairing.elements
        if loop in load.type.axes and is_part(facts.program, load, PAIRED)
    ]
    shared = frozenset[str]().union(*copied)
    rows = tuple(a for a in facts.nest.base if copied and a not in shared)
    inner = tuple(a for a in facts.inner if a != loop)
    columns = tuple(a for a in facts.extra if a not in inner)
    if not rows or not (inner or columns):
        return None
    masked = any(
        isinstance(step, Partial) and step.condition is not None
        for sweep in facts.nest.sweeps
        for step in sweep.update
    )
    kinds = {pairing.value.type.dtype for pairing in paired}
    kinds |= {F64 if F64 in stored else F32} if products else set()
    if len(kinds) != 1:
        return None
    arrays = (len(side) for pairing in paired for side in (pairing.lefts, pairing.rights))
    light = _specials(facts, loop) < FEW_SPECIAL * facts.size((*facts.nest.base, loop))
    own = [side for pair in products for side in pair if not set(rows) & set(side.type.axes)]
    narrow = any(is_part(facts.program, side, EIGHT_BITS) for side in own)
    most = max(arrays, default=0)
    return Shape(rows, loop, inner, columns, masked, light, most, narrow, *kinds)


def _specials(facts: Facts, loop: str) -> float:
    """Return the special functions of elements: a divisor that many share is inverted once."""
    exprs = facts.reached(e for sweep in facts.nest.sweeps for e in step_expressions(sweep))
    shared = sum(
        facts.size(node.type.axes)
        for node in (node for expr in exprs for node in walk.nodes(expr))
        if isinstance(node, Apply) and node.op == "div" and loop in node.type.axes
        if set(node.arguments[1].type.axes) < set(node.type.axes)
    )
    return facts.element_work.special - shared


def product_pairs(facts: Facts) -> list[tuple[Expr, Expr]]:
    """Return the operands of every product of a nest."""
    found = []
    for sweep in (*facts.nest.sweeps, *facts.used_inner):
        for step in sweep.update:
            if isinstance(step, Partial) and step.op == "sum":
                pair = split_product(step, sweep, facts.program, facts.pointwise)
                if pair is not None:
                    found.append((pair.left, pair.right))
    return found


def pairings(facts: Facts, sweeps: Iterable[Sweep]) -> list[Pairing]:
    """Return the reductions over pairs of some of a nest's sweeps, products aside."""
    found = []
    for sweep in sweeps:
        for step in sweep.update:
            if not isinstance(step, Partial):
                continue
            if step.op == "sum" and split_product(step, sweep, facts.program, facts.pointwise):
                continue
            pairing = pairing_of(step, sweep, facts.pointwise)
            if pairing is not None:
                found.append(pairing)
    return found


def padded(extent: int) -> int:
    """Return the extent that registers and shared memory have for a whole axis."""
    return -(-extent // STEP) * STEP


def _line(extent: int, size: int = 2) -> int:
    """Return the elements that shared memory has for a whole axis: lines of at most 128 bytes."""
    width = padded(extent)
    most = LINE_ALIGNMENT // size
    line = next((n for n in (most // 4, most // 2) if width <= n), most)
    return -(-width // line) * line


def _plans(facts: Facts, shape: Shape, device: Device) -> Iterator[MatrixPlan]:
    """Yield plans, the preferred one first, then such as ask for fewer registers."""
    length = facts.extent(shape.loop)
    widest = max(padded(facts.extent(a)) for a in (*shape.inner, *shape.columns))
    units = facts.size(a for a in facts.nest.base if a not in shape.rows)
    tall = facts.size(shape.rows)
    fitting = facts.extent(shape.rows[-1])
    if widest <= NARROW and length > SHORT_LOOP and fitting >= 3 * GROUP_ROWS:
        first = MatrixPlan(_rows(facts, shape, 3 * GROUP_ROWS), (), 2, 1, turns=True)
    elif widest <= NARROW or tall <= GROUP_ROWS or -(-tall // 128) * units < device.sms // 2:
        first = MatrixPlan(_rows(facts, shape, 1 * GROUP_ROWS), (), 2, 2 if widest <= 128 else 1)
    else:
        turns = widest <= MIDDLE or (shape.masked and length <= SHORT_LOOP)
        first = MatrixPlan(_rows(facts, shape, 2 * GROUP_ROWS), (), 2, 1, turns=turns)
    light, tall_units = widest <= MIDDLE, first.groups > 1
    # Few rows pass by memory as fast as it is: the next unit's tiles must not wait for this one's.
    # Units of unequal length are fetched by blocks that stay, the next one's operands ahead.
    lasting = light or tall <= FEW_ROWS or (tall_units and shape.masked)
    first = replace(first, persistent=lasting, staged=(light or tall_units) and tall > FEW_ROWS)
    first = replace(first, converts=shape.narrow)
    calm = MatrixPlan(_rows(facts, shape, 1 * GROUP_ROWS), (), 2, 1, converts=shape.narrow)
    tries = [(first, most) for most in NARROWER]
    for plan, most in (*tries, (calm, 64), (calm, 32)):
        fitted = _fitted(facts, shape, plan, most, device)
        if fitted is not None:
            yield fitted


def _rows(facts: Facts, shape: Shape, wanted: int) -> tuple[tuple[str, int], ...]:
    """Return the row axes with their tiles: the last one first, the others where it is short."""
    *others, last = shape.rows
    if not others or facts.extent(last) >= wanted:
        return ((last, wanted),)
    left = wanted
    found: list[tuple[str, int]] = []
    for axis in reversed(others):
        if found:
            break
        tile = min(GROUP_ROWS, power_above(facts.extent(last)))
        found.append((last, tile))
        left //= tile
        if left > 1:
            found.append((axis, left))
    return tuple(reversed(found))


def _fitted(
    facts: Facts, shape: Shape, plan: MatrixPlan, most: int, device: Device
) -> MatrixPlan | None:
    """Return a plan with as many columns as registers and shared memory have room for."""
    whole = [(a, padded(facts.extent(a))) for a in (*shape.columns, *shape.inner)]
    accumulators = sum(padded(facts.extent(a)) for a in shape.columns)
    outer = sum(_line(facts.extent(a)) for a in shape.columns)
    looped, once, made = _copied_lines(facts, shape)
    room = REGISTERS[plan.groups]
    if shape.masked and plan.groups > 2:
        room -= MASK_REGISTERS
    if plan.min_blocks > 1:
        room = 65536 // (plan.min_blocks * plan.threads) - 32
    if shape.narrow:
        room = min(REGISTERS[plan.groups], plan.consumer_registers(checks=False) - 32)
    columns = min(most, int((room - accumulators / 2) / 0.75) // STEP * STEP)
    length = facts.extent(shape.loop)
    while columns >= STEP:
        tiles = -(-length // columns)
        columns = padded(-(-length // tiles))
        read = columns * looped
        kept = plan.tile_rows * once + CONVERTED_TILES * columns * made + plan.stages * read
        out = plan.tile_rows * outer * 2
        limit = device.sm.shared_bytes_per_block - BARRIER_BYTES
        if plan.min_blocks > 1:
            limit = device.sm.shared_bytes // plan.min_blocks - BARRIER_BYTES
        tiled = replace(plan, columns=((shape.loop, columns), *whole), tile_bytes=read)
        left = limit - kept - (out if plan.staged else 0)
        if left >= 0 and shape.narrow:
            return replace(tiled, stages=min(MOST_STAGES, plan.stages + left // read))
        if left >= 0:
            # Groups in turn fill each other's gaps between units as it is.
            calm = plan.persistent and plan.groups == 2 and not plan.turns
            return replace(tiled, ahead=calm and shape.light and left >= plan.tile_rows * once)
        if plan.staged and kept <= limit:
            return replace(tiled, staged=False)
        columns -= STEP
    return None


def _copied_lines(facts: Facts, shape: Shape) -> tuple[int, int, int]:
    """Return the bytes that a column of the loop and a row bring into shared memory.

    The third number is what operands of 8 bits become for each column of the loop.
    """
    whole = {*shape.columns, *shape.inner}
    looped = once = made = 0
    for side in {side for pair in product_pairs(facts) for side in pair}:
        narrow = shape.narrow and is_part(facts.program, side, EIGHT_BITS)
        for axis in whole.intersection(side.type.axes):
            line = 2 * _line(facts.extent(axis))
            if narrow and shape.loop in side.type.axes:
                looped += _line(facts.extent(axis), 1)
                made += line
            elif isinstance(side, Load) and shape.loop in side.type.axes:
                looped += line
            elif isinstance(side, Load):
                once += line
    return looped, once, made


def _nest_plan(facts: Facts, shape: Shape, plan: MatrixPlan) -> NestPlan:
    tiles = dict(plan.rows)
    base = facts.program.ordered(frozenset(facts.nest.base))
    grid = tuple(GridAxis(a, tiles.get(a, 1)) for a in base)
    resident = (*shape.columns, *shape.inner)
    limits = tuple((a, plan.width(a)) for a in resident)
    loop = (shape.loop, plan.width(shape.loop))
    return NestPlan("single-segment", grid, (loop,), resident, None, limits)
