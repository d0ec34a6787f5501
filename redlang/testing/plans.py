"""Plans at random: every way to cut a nest that is valid, sensible or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redlang.ir.loops import GridAxis
from redlang.ir.program import Program
from redlang.schedule.nests import Nest
from redlang.schedule.plan import Kind, NestPlan, Plan, segment_axis
from redlang.schedule.uses import Uses

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several: Hypothesis, which can shrink, or a seeded generator, which spreads."""

TILES = (64, 16, 5, 3)


def draw_plan(pick: Pick, program: Program, nests: Sequence[Nest]) -> tuple[Plan, dict[str, int]]:
    """Return a plan for all nests, and the number of segments of each axis that it cuts."""
    plan = Plan(tuple(_nest_plan(pick, program, nest) for nest in nests))
    segments = {
        segment_axis(nest.segmented): pick(range(1, 6))
        for nest in plan.nests
        if nest.segmented is not None
    }
    return plan, segments


def _nest_plan(pick: Pick, program: Program, nest: Nest) -> NestPlan:
    uses = Uses(program, (*nest.sweeps, *nest.inner))
    everything = frozenset[str]().union(*map(uses.all_axes, nest.sweeps))
    swept = {axis for sweep in nest.sweeps for axis in sweep.axes}
    inner = {axis for sweep in nest.inner for axis in sweep.axes}
    stored = {axis for n in nest.results for axis in program.results[n].axes}
    extra = [axis for axis in program.ordered(everything) if axis not in nest.base]
    grid = [GridAxis(axis, pick(TILES)) for axis in nest.base]
    resident: list[str] = []
    looped: list[tuple[str, int]] = []
    for axis in extra:
        if axis not in swept | inner and pick((False, True)):
            grid.append(GridAxis(axis, pick(TILES)))
        else:
            resident.append(axis)
    for axis in program.ordered(frozenset(swept | inner | stored)):
        if axis in nest.base or axis in extra:
            continue
        if pick((False, True)):
            resident.append(axis)
        else:
            looped.append((axis, pick(TILES)))
    kind: Kind = "single-segment" if nest.sweeps else "map"
    segmented = None
    if nest.sweeps and not (stored - set(nest.base) - set(extra)) & swept:
        later = {axis for sweep in nest.sweeps[1:] for axis in sweep.axes}
        able = [axis for axis, _ in looped if axis in nest.sweeps[0].axes and axis not in later]
        if able and pick((False, True)):
            kind, segmented = "multi-segment", pick(able)
    blocks = tuple(
        (axis, pick(((2 * tile,), (tile, 4 * tile)))) for axis, tile in looped if axis in swept
    )
    blocks = blocks if pick((False, False, True)) else ()
    return NestPlan(kind, tuple(grid), tuple(looped), tuple(resident), segmented, blocks=blocks)
