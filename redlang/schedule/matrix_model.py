"""What a plan of matrix tiles costs: the tensor core's time, the elements', the memory's."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from redlang.ir.types import F64
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import Device
from redlang.schedule.estimates import Estimate
from redlang.schedule.facts import Facts
from redlang.schedule.matrix_plans import pairings, product_pairs
from redlang.schedule.matrix_segments import work_of
from redlang.schedule.narrow import CONVERTED, EIGHT_BITS, is_part
from redlang.schedule.occupancy import occupancy
from redlang.schedule.parts import Candidate, Part
from redlang.schedule.product_plans import BYTES, product_shape
from redlang.schedule.roofline import Bound, Pipe, Work, roofline
from redlang.schedule.search import Ranked

PRODUCTS = 2048
"""Multiply-adds of 16-bit operands that a Hopper SM starts in a clock."""
WARP_PRODUCTS = {"8.0": 1024, "8.6": 512, "8.9": 512, "9.0": 1280}
"""The same by `mma`, as data sheets have it; on 9.0 as measured."""
SCATTERED = 75_000.0
"""Elements of a result that reach memory in a µs if each has a sector for itself."""
REACHED = 0.65
"""The share of that which kernels with element work between their products reach."""


def ranked(candidate: Candidate, facts: Facts, device: Device) -> Ranked:
    """Return a candidate on matrix tiles with its estimate."""
    return Ranked(candidate, tuple(_estimate(part, facts, device) for part in candidate.parts))


def _estimate(part: Part, facts: Facts, device: Device) -> Estimate:
    plan = part.matrix
    assert plan is not None
    products = _products(part, facts)
    rate = PRODUCTS
    if plan.unit == "mma":
        rate = WARP_PRODUCTS.get(device.capability, WARP_PRODUCTS["8.0"])
    elif plan.unit == "tf32":
        rate = WARP_PRODUCTS.get(device.capability, WARP_PRODUCTS["8.0"]) // 2
    elif plan.unit == "fma":
        rate = device.sm.double if plan.dtype is F64 else device.sm.fma
    elif part.plan.integers:
        rate = 2 * PRODUCTS
    seconds = products / (device.sms * device.clock_mhz * rate)
    if plan.unit == "wgmma":
        # Conversions take shared memory's time, which products need as well.
        seconds += _converted(part, facts) / (device.sms * device.clock_mhz * CONVERTED)
    elements = _with_pairs(facts)
    # Products are the tensor core's: the other pipes have what is left.
    pipe: Pipe = "arithmetic" if plan.unit == "fma" else "tensor core"
    if plan.dtype is F64:
        pipe = "double"
        elements = replace(elements, double=max(0.0, elements.double - 2 * products))
    else:
        elements = replace(elements, fma=max(0.0, elements.fma - 2 * products))
    work = elements + Work(facts.bytes_read, facts.bytes_written)
    rest = roofline(work, device)
    pipes = ((pipe, seconds), *rest.pipes_us)
    slowest = max(pipes, key=lambda pipe: pipe[1])
    bound = Bound(slowest[1] + rest.launch_us, slowest[0], pipes, rest.launch_us)
    blocks = prod(-(-facts.extent(g.axis) // g.tile) for g in part.plan.grid)
    registers = 65536 // (plan.min_blocks * plan.threads) // 8 * 8
    fits = occupancy(BlockDemand(plan.threads, min(255, registers)), device.sm)
    # The busiest SM's share of the work; memory serves all, however they lie.
    uneven = -(-blocks // device.sms) * device.sms / max(1, blocks)
    computing = max(us for name, us in pipes if name != "memory")
    time = max(slowest[1], computing * uneven / REACHED) + rest.launch_us
    if part.across or not part.plan.resident:
        # What settled the plan's tiles and segments.
        loop = part.plan.segmented or part.plan.tiles[0][0]
        work_done = work_of(plan, part.plan, loop, facts.extents, device)
        segments = work_done.best if part.across else 1
        time = max(slowest[1], work_done.time_us(segments)) + rest.launch_us
        blocks *= segments
    time += _scattered_us(part, facts)
    terms = tuple(sorted(pipes, key=lambda pipe: -pipe[1]))
    return Estimate(time, slowest[0], bound, fits, registers, blocks, terms)


def _scattered_us(part: Part, facts: Facts) -> float:
    """Return what results take whose neighbours lie in other units, a sector of memory for each."""
    assert part.matrix is not None
    results = [facts.program.results[number].axes for number in facts.nest.results]
    widths = dict((*part.matrix.rows, *part.matrix.columns))
    apart = [axes for axes in results if axes and widths.get(axes[-1], 1) == 1]
    return sum(facts.size(axes) for axes in apart if facts.extent(axes[-1]) > 1) / SCATTERED


def _converted(part: Part, facts: Facts) -> int:
    """Return how many elements of 8 bits become 16 bits, each time that they do."""
    assert part.matrix is not None
    if part.plan.integers:
        return 0
    rows = {axis for axis, _ in part.matrix.rows}
    sides = {side for pair in product_pairs(facts) for side in pair}
    return sum(
        facts.size(side.type.axes)
        * prod(
            -(-facts.extent(grid.axis) // grid.tile)
            for grid in part.plan.grid
            if grid.axis not in side.type.axes
        )
        for side in sides
        if is_part(facts.program, side, EIGHT_BITS) and not rows & set(side.type.axes)
    )


def _with_pairs(facts: Facts) -> Work:
    """Return the work on elements, with pairs as their instructions have it."""
    work = facts.element_work
    for pairing in pairings(facts, (*facts.nest.sweeps, *facts.used_inner)):
        own, count = facts.operations(pairing.value), facts.size(pairing.axes)
        if pairing.value.type.dtype is F64:
            double = max(0.0, work.double - own.double - count) + count * pairing.instructions
            work = replace(work, double=double)
            continue
        joins = 0 if pairing.op == "sum" else count
        work = replace(
            work,
            fma=max(0.0, work.fma - own.fma - (count - joins)) + count * pairing.instructions,
            extreme=max(0.0, work.extreme - own.extreme - joins),
            special=max(0.0, work.special - own.special),
        )
    return work


def _products(part: Part, facts: Facts) -> int:
    """Return the multiply-adds of all products."""
    shape = None
    if part.plan.integers:
        shape = product_shape(facts, BYTES, integers=True)
    elif not part.plan.resident:
        shape = product_shape(facts)
    if shape is None:
        pairs = product_pairs(facts)
        return sum(facts.size({*left.type.axes, *right.type.axes}) for left, right in pairs)
    area = facts.size({*facts.nest.base, *facts.extra})
    depth = sum(facts.extent(loop) for loop in shape.loops)
    return area * depth * shape.products // len(shape.loops)
