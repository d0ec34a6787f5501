"""A nest cut into nests of its own: one for each sweep, and a map for what has swept axes."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.ir.incremental import Sweep
from redlang.schedule.facts import Facts
from redlang.schedule.nests import Nest
from redlang.schedule.uses import step_expressions


def cut(facts: Facts) -> tuple[Nest, ...]:
    """Return a nest as nests of one sweep each, and a map for results over swept axes."""
    nest = facts.nest
    if not nest.sweeps:
        return (nest,)
    mapped = [
        n
        for n in nest.results
        if set(facts.program.results[n].axes) & {*facts.swept, *facts.mapped}
    ]
    ends = [n for n in nest.results if n not in mapped]
    groups: list[list[Sweep]] = []
    for sweep in nest.sweeps:
        if groups and all(facts.is_short(a) and a in facts.extra for a in sweep.axes):
            groups[-1].append(sweep)
        else:
            groups.append([sweep])
    pieces = []
    for number, group in enumerate(groups):
        later = [sweep for other in groups[number + 1 :] for sweep in other]
        exports = tuple(
            stage
            for sweep in group
            for stage in sweep.stages
            if stage in nest.exports or mapped or _is_read(facts, stage, later, ends)
        )
        results = () if later else tuple(ends)
        pieces.append(Nest(nest.base, tuple(group), nest.inner, results, exports))
    maps = [
        Nest(
            facts.program.ordered(frozenset(facts.program.results[n].axes)),
            (),
            nest.inner,
            (n,),
            (),
        )
        for n in mapped
    ]
    return (*pieces, *maps)


def _is_read(facts: Facts, stage: str, later: Sequence[Sweep], ends: Sequence[int]) -> bool:
    """Tell whether a later piece reads a stage: its sweeps, what is inside them, its results."""
    if not later:
        return False
    read = [*later, *facts.used_inner]
    exprs = [e for sweep in read for e in step_expressions(sweep)]
    exprs += [facts.program.results[n].value for n in ends]
    return any(stage in facts.uses.stages(e) for e in exprs)
