"""Hypothesis strategies for plans: every way to cut a nest that is valid, sensible or not."""

from hypothesis import strategies as st

from redlang.ir.loops import GridAxis
from redlang.schedule.nests import Uses
from redlang.schedule.plan import NestPlan, Plan, segment_axis

tiles = st.sampled_from([64, 16, 5, 3])


@st.composite
def nest_plans(draw, program, nest):
    """Draw a plan for one nest."""
    uses = Uses(program, (*nest.sweeps, *nest.inner))
    everything = frozenset().union(*map(uses.all_axes, nest.sweeps))
    swept = {axis for sweep in nest.sweeps for axis in sweep.axes}
    inner = {axis for sweep in nest.inner for axis in sweep.axes}
    stored = {axis for n in nest.results for axis in program.results[n].axes}
    extra = [a for a in program.ordered(everything) if a not in nest.base]
    grid = [GridAxis(axis, draw(tiles)) for axis in nest.base]
    resident, looped = [], []
    for axis in extra:
        if axis not in swept | inner and draw(st.booleans()):
            grid.append(GridAxis(axis, draw(tiles)))
        else:
            resident.append(axis)
    for axis in program.ordered(frozenset(swept | inner | stored)):
        if axis in nest.base or axis in extra:
            continue
        if draw(st.booleans()):
            resident.append(axis)
        else:
            looped.append((axis, draw(tiles)))
    kind, segmented = "single-segment" if nest.sweeps else "map", None
    if nest.sweeps and not (stored - set(nest.base) - set(extra)) & swept:
        later = {axis for sweep in nest.sweeps[1:] for axis in sweep.axes}
        candidates = [a for a, _ in looped if a in nest.sweeps[0].axes and a not in later]
        if candidates and draw(st.booleans()):
            kind, segmented = "multi-segment", draw(st.sampled_from(candidates))
    return NestPlan(kind, tuple(grid), tuple(looped), tuple(resident), segmented)


@st.composite
def plans(draw, program, nests):
    """Draw a plan and the numbers of segments."""
    plan = Plan(tuple(draw(nest_plans(program, nest)) for nest in nests))
    segments = {
        segment_axis(p.segmented): draw(st.integers(1, 5))
        for p in plan.nests
        if p.segmented is not None
    }
    return plan, segments
