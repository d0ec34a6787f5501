"""What a sweep costs whose elements go to their classes."""

from __future__ import annotations

from math import prod

from redlang.ir.incremental import Partial
from redlang.schedule.classes import (
    ClassPlan,
    class_bytes,
    class_parts,
    class_units,
    longest_chain,
)
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import WARP, Device
from redlang.schedule.estimates import SMOOTH, Estimate
from redlang.schedule.facts import Facts
from redlang.schedule.occupancy import occupancy
from redlang.schedule.parts import Part
from redlang.schedule.plan import NestPlan
from redlang.schedule.roofline import Work, roofline
from redlang.schedule.threads import ThreadPlan

ELEMENT_CLOCKS, ISSUE = 42, 14
"""From reading a state to writing it, and the instructions for each piece of an element."""
LOADING_US = 0.6
"""From a load to its first use, with little else under way."""
JOINING_US = 4.0
"""What the merge takes beside its bytes: from the launch to the last store."""
REGISTERS = 64
"""Of a thread, roughly."""


def by_class(part: Part, classes: ClassPlan, facts: Facts, device: Device) -> Estimate:
    """Return what a part costs whose elements go to their classes, its merge included."""
    terms = _terms(facts, part.plan, part.threads, classes.axis, device)
    swept = [time for name, time in terms.items() if name != "states"]
    total = sum(time**SMOOTH for time in swept) ** (1 / SMOOTH) + terms["states"]
    work = Work(facts.bytes_read, facts.bytes_written, facts.elements, launches=2)
    bytes_ = class_bytes(part.nest, part.plan, part.threads, classes)
    fits = occupancy(BlockDemand(part.threads.threads, REGISTERS, bytes_), device.sm)
    extents = {a.name: facts.extent(a.name) for a in facts.program.axes}
    parts = class_parts(part.plan, part.threads, extents, device.sms)
    bound = roofline(work, device)
    ordered = tuple(sorted(terms.items(), key=lambda item: -item[1]))
    time = total + bound.launch_us if fits.blocks else float("inf")
    blocks = parts * class_units(part.plan, extents)
    return Estimate(time, ordered[0][0], bound, fits, REGISTERS, blocks, ordered)


def _terms(
    facts: Facts, plan: NestPlan, threads: ThreadPlan, axis: str, device: Device
) -> dict[str, float]:
    """Return what elements that go to their classes cost, in microseconds by what takes them."""
    extents = {name: facts.extent(name) for name, _ in plan.tiles}
    extents |= {grid.axis: facts.extent(grid.axis) for grid in plan.grid}
    parts = class_parts(plan, threads, extents, device.sms)
    times = prod(-(-extents[grid.axis] // grid.tile) for grid in plan.grid if grid.axis == axis)
    per_sm = -(-class_units(plan, extents) * parts // device.sms)
    elements = longest_chain(plan, threads, extents, parts)
    pieces = sum(1 for step in facts.nest.sweeps[0].update if isinstance(step, Partial))
    held = prod(threads.spread(name).count for name, _ in plan.tiles)
    turns = elements / held * (LOADING_US + held * ELEMENT_CLOCKS / device.clock_mhz)
    warps = threads.threads / WARP * per_sm
    states = sum(
        facts.size(step.types[0].axes) * 8
        for step in facts.nest.sweeps[0].update
        if isinstance(step, Partial)
    )
    bandwidth = device.bandwidth_gb_s * 1e3
    return {
        "memory": facts.bytes_read * times / bandwidth,
        "waiting": turns * -(-per_sm // threads.min_blocks),
        "arithmetic": elements * pieces * ISSUE * warps / 4 / device.clock_mhz,
        "states": JOINING_US + 2 * parts * states / bandwidth,
    }
