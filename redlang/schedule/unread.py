"""Sweeps without what nobody reads: results of stages, and the states that only those need.

    mu = sum[n](w * x) / sum[n](w);   sum[n](w * (x - mu) ** 2)

is finished from sums about a centre, which say themselves how far it is from the mean. The first
sum is a stage of the program still, but nothing reads it any more.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.ir.program import Program
from redlang.schedule.nests import Nest
from redlang.schedule.trimming import trimmed
from redlang.schedule.uses import Uses, step_expressions


def without_unread(program: Program, nest: Nest) -> Nest:
    """Return a nest without stages that none of its results and sweeps and no other nest reads.

    A sweep of which nothing is read stays as it is. Grids and costs go by the nest as it was.
    """
    every = {id(sweep): sweep for sweep in (*nest.sweeps, *nest.inner)}
    uses = Uses(program, tuple(every.values()))
    read = set(nest.exports)
    for number in nest.results:
        read |= uses.stages(program.results[number].value)
    for sweep in every.values():
        others = (uses.stages(expr) for expr in step_expressions(sweep))
        read |= set[str]().union(*others) - set(sweep.stages)
    kept = {number: trimmed(sweep, read) for number, sweep in every.items()}
    sweeps, inner = (tuple(kept[id(s)] for s in own) for own in (nest.sweeps, nest.inner))
    return replace(nest, sweeps=sweeps, inner=inner)
