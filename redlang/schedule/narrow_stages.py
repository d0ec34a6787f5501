"""Stages of fewer axes than those beside them in a sweep: they get a sweep of their own.

z = sum[n](w[n]);   u = sum[n](w[n] * x[m, n]) / z

share a pass, for u is finished by z. But a unit that finishes both has all of m, which may be long.
What z reads is little beside x: it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.incremental import Let, Sweep
from redlang.ir.program import Expr, Load, Reduce
from redlang.schedule.short_axes import elements
from redlang.schedule.trimming import trimmed
from redlang.schedule.uses import Uses


def apart(
    uses: Uses, sweeps: tuple[Sweep, ...], is_long: Callable[[str], bool]
) -> tuple[Sweep, ...]:
    """Return sweeps of which none keeps a long axis whole for the sake of a stage that lacks it.

    Args:
        uses: Of the sweeps.
        sweeps: In an order in which they can run.
        is_long: Tells whether a unit had better not have all of an axis.
    """
    return tuple(part for sweep in sweeps for part in _parts(uses, sweep, is_long))


def _parts(uses: Uses, sweep: Sweep, is_long: Callable[[str], bool]) -> Iterator[Sweep]:
    base = uses.base(sweep)
    few = [stage for stage in sweep.stages if uses.stage_axes(stage) == base]
    rest = [stage for stage in sweep.stages if stage not in few]
    common = frozenset.intersection(*map(uses.stage_axes, rest)) if few and rest else frozenset()
    lacking = frozenset(axis for axis in common - base if is_long(axis))
    every = {*common, *sweep.axes}
    loads = (node for node in elements(uses, sweep) if isinstance(node, Load))
    if lacking and _is_little(uses, few) and any(every <= {*load.type.axes} for load in loads):
        first, second = trimmed(sweep, few), trimmed(sweep, rest, known=few)
        # No name means two things, and what both need each of them computes.
        names = {a.name: f"{a.name}.again" for a in first.finish if a.name not in few}
        finish = [
            Let(names.get(a.name, a.name), walk.rename(a.value, names)) for a in second.finish
        ]
        yield from (first, replace(second, finish=tuple(finish)))
        return
    yield sweep


def _is_little(uses: Uses, stages: list[str]) -> bool:
    """Tell whether no other reduction is needed for these, nor an extreme among them."""
    read = [uses.stages(expr) for stage in stages for expr in _values(uses, stage)]
    values = {stage: uses.definitions[stage].value for stage in stages}
    sums = {name for name, v in values.items() if isinstance(v, Reduce) and v.op == "sum"}
    return frozenset[str]().union(*read) <= sums


def _values(uses: Uses, stage: str) -> tuple[Expr, ...]:
    return walk.expressions(uses.definitions[stage].value)
