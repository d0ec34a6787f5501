"""A GPU plan in words: what runs how, what limits it, the roofline, and the plans that lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from redlang.ir.printing import to_text
from redlang.ir.program import Program
from redlang.schedule.device import Device
from redlang.schedule.estimates import Estimate
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.model import segments
from redlang.schedule.parts import Part
from redlang.schedule.plan import passes
from redlang.schedule.search import Choice, Measured, Ranked
from redlang.schedule.views import stored_operands

LOSERS = 5


def plan_text(
    program: Program,
    extents: Mapping[str, int],
    choice: Choice,
    device: Device,
    parts: Sequence[Part],
    figures: Mapping[int, Sequence[str]],
) -> str:
    """Return the plan of a program on a GPU.

    Args:
        program: What the parts compute, operands that it stores for itself included.
        extents: Those of the call.
        choice: The ranked plans of its class.
        device: The GPU.
        parts: The parts that run, which a plan given up by the compiler is not among.
        figures: What the compiler reported, by the number of the part.
    """
    sizes = ", ".join(f"{axis} = {extent}" for axis, extent in extents.items())
    lines = [f"plan of {program.name} for {sizes} on {device.name}"]
    stored = _stored(program)
    for number, options in enumerate(choice.ranked):
        chosen = next((r for r in options if set(r.candidate.parts) <= set(parts)), options[0])
        lines += _nest(number, chosen, extents, device, stored)
        numbers = [i for i, part in enumerate(parts) if part in chosen.candidate.parts]
        lines += [f"  compiled  {figure}" for i in numbers for figure in figures.get(i, ())]
        lines += _measured(choice.measured[number] if choice.measured else ())
        lines += _losers([r for r in options if r is not chosen])
    return "\n".join(lines)


def _stored(program: Program) -> dict[int, str]:
    """Return what a program stores as operands of its products, by number of result."""
    read = stored_operands(program)
    return {
        number: f"{result.dtype} for products, which read arrays: {to_text(result.value)}"
        for number, result in enumerate(program.results)
        if f"result.{number}" in read
    }


def _nest(
    number: int,
    chosen: Ranked,
    extents: Mapping[str, int],
    device: Device,
    stored: Mapping[int, str],
) -> Iterator[str]:
    yield f"nest {number}: {chosen.candidate.family}, {chosen.time_us:.1f} µs predicted"
    for part, estimate in zip(chosen.candidate.parts, chosen.estimates, strict=True):
        yield from _part(part, estimate, extents, device)
        for i in part.nest.results:
            yield f"  stores    {stored.get(i, f'result {i}')}"
        yield from _estimate(estimate)


def _part(
    part: Part, estimate: Estimate, extents: Mapping[str, int], device: Device
) -> Iterator[str]:
    plan, threads = part.plan, part.threads
    block = threads.threads if part.matrix is None else part.matrix.threads
    blocks = "blocks" if part.matrix is None else "units, blocks"
    grid = ", ".join(f"{g.axis} by {g.tile}" for g in plan.grid) or "one unit"
    yield f"  grid      {grid}; {estimate.blocks} {blocks} of {block} threads"
    if part.matrix is not None:
        yield from _matrix(part.matrix)
    elif threads.units > 1:
        yield f"  units     {threads.units} a block, {threads.unit_threads} threads each"
    if threads.blocks > 1:
        yield f"  clusters  {threads.blocks} blocks share a unit"
    if threads.ahead:
        yield f"  ahead     {threads.ahead} tiles on their way to shared memory"
    owner = "threads" if part.matrix is None else "lanes"
    for spread in threads.spreads:
        held = f"{spread.registers} × {spread.threads} {owner} × {spread.width}"
        yield f"  {spread.axis:<9} {held}"
    if plan.resident:
        limits = dict(plan.limits)
        held = ", ".join(f"{a} up to {limits[a]}" if a in limits else a for a in plan.resident)
        place = "shared   " if threads.shared else "registers"
        yield f"  {place} {held}{', as stored, in parts' if threads.stored else ''}"
    if plan.segmented is not None:
        count = segments(part, extents, device)
        yield f"  segments  {plan.segmented} in {count}, merged in order"
    yield from passes(plan, part.nest.sweeps)


def _estimate(estimate: Estimate) -> Iterator[str]:
    bound = estimate.bound
    fits = estimate.occupancy
    yield (
        f"  roofline  {bound.time_us:.1f} µs by {bound.limiter}; "
        f"predicted {estimate.time_us:.1f} µs, limited by {estimate.limiter}"
    )
    yield (
        f"  occupancy {fits.blocks} blocks an SM, {100 * fits.warp_share:.0f} % of warps, "
        f"limited by {fits.limiter}"
    )


def _measured(measured: Sequence[Measured]) -> Iterator[str]:
    if measured:
        others = ", ".join(f"{m.time_us:.1f} {m.family}" for m in measured[1:])
        best = f"{measured[0].time_us:.1f} µs, the least of {len(measured)} plans"
        yield f"  measured  {best}{f' (others: {others})' if others else ''}"


def _matrix(plan: MatrixPlan) -> Iterator[str]:
    """Yield what a plan on matrix tiles adds: who computes, and how blocks run."""
    rows = " × ".join(f"{tile} {axis}" for axis, tile in plan.rows)
    columns = ", ".join(f"{axis} {width}" for axis, width in plan.columns)
    yield f"  products  {plan.groups} warp groups of 64 rows ({rows}); columns {columns}"
    ways = [f"{plan.stages} tiles of each operand in flight"]
    ways += ["groups in turn"] if plan.turns else []
    ways += ["blocks stay for several units"] if plan.persistent else []
    ways += ["a unit begins while the last one ends"] if plan.ahead else []
    ways += ["results by tensor copies"] if plan.staged else []
    yield f"  copies    {', '.join(ways)}"


def _losers(others: Sequence[Ranked]) -> Iterator[str]:
    for ranked in others[:LOSERS]:
        shapes = "; ".join(shape_text(part) for part in ranked.candidate.parts)
        yield f"  lost      {ranked.time_us:8.1f} µs  {ranked.candidate.family}: {shapes}"


def shape_text(part: Part) -> str:
    """Return the threads of a part in a line."""
    if part.matrix is not None:
        matrix = part.matrix
        sizes = ", ".join(f"{axis} {size}" for axis, size in (*matrix.rows, *matrix.columns))
        return f"{sizes}, {matrix.groups} warp groups"
    spreads = ", ".join(
        f"{s.axis} {s.registers}×{s.threads}×{s.width}" for s in part.threads.spreads
    )
    units = f", {part.threads.units} units" if part.threads.units > 1 else ""
    units += f", {part.threads.blocks} blocks" if part.threads.blocks > 1 else ""
    units += ", in shared memory" if part.threads.shared else ""
    units += ", as stored" if part.threads.stored else ""
    units += f", {part.threads.ahead} tiles ahead" if part.threads.ahead else ""
    crowded = part.threads.min_blocks > 1 and not part.across
    units += f", {part.threads.min_blocks} blocks an SM" if crowded else ""
    across = ", shared by blocks" if part.across else ""
    return f"{spreads or 'one element'}{units}{across}"
