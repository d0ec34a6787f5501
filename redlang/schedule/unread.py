"""Sweeps without what nobody reads: results of stages, and the states that only those need.

    mu = sum[n](w * x) / sum[n](w);   sum[n](w * (x - mu) ** 2)

is finished from sums about a centre, which say themselves how far it is from the mean. The first
sum is a stage of the program still, but nothing reads it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from redlang.ir import walk
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, Step, Sweep
from redlang.ir.program import Program
from redlang.schedule.nests import Nest
from redlang.schedule.uses import Uses, step_expressions

AnyStep = TypeVar("AnyStep", bound=Step)


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
    kept = {number: _trimmed(sweep, read) for number, sweep in every.items()}
    sweeps, inner = (tuple(kept[id(s)] for s in own) for own in (nest.sweeps, nest.inner))
    return replace(nest, sweeps=sweeps, inner=inner)


def _trimmed(sweep: Sweep, read: Collection[str]) -> Sweep:
    stages = tuple(stage for stage in sweep.stages if stage in read)
    if not stages or stages == sweep.stages:
        return sweep
    finish = _alive(sweep.finish, stages)
    found = set[str]().union(*(walk.refs(let.value) for let in finish))
    while True:
        # What moves a state reads others.
        states = {state.name for state in sweep.states} & found
        update = _alive(sweep.update, _values(sweep.commits, states))
        merge = _alive(sweep.merge, _values(sweep.merge_commits, states))
        wider = found.union(*map(_reads, (*update, *merge)))
        if wider == found:
            break
        found = wider
    return replace(
        sweep,
        stages=stages,
        states=tuple(state for state in sweep.states if state.name in states),
        update=update,
        commits=tuple(commit for commit in sweep.commits if commit.state in states),
        merge=merge,
        merge_commits=tuple(c for c in sweep.merge_commits if c.state in states),
        finish=finish,
        joint=_alive(sweep.joint, _values(sweep.merge_commits, states)),
    )


def _values(commits: Iterable[Commit], states: Collection[str]) -> list[str]:
    return [commit.value for commit in commits if commit.state in states]


def _alive(steps: Sequence[AnyStep], names: Iterable[str]) -> tuple[AnyStep, ...]:
    """Return the steps that some names need."""
    needed = set(names)
    kept: list[AnyStep] = []
    for step in reversed(steps):
        if not needed.isdisjoint(_names(step)):
            kept.append(step)
            needed |= _reads(step)
    return tuple(reversed(kept))


def _names(step: Step) -> tuple[str, ...]:
    return step.names if isinstance(step, Partial | Combine) else (step.name,)


def _reads(step: Step) -> set[str]:
    """Return the names that a step reads; states of a side of a merge count as states."""
    match step:
        case Each() | Let():
            names = walk.refs(step.value)
        case Partial(values=values, condition=condition):
            parts = values if condition is None else (*values, condition)
            names = frozenset[str]().union(*map(walk.refs, parts))
        case Combine():
            names = frozenset((*step.left, *step.right))
    return {name.removeprefix("a.").removeprefix("b.") for name in names} | set(names)
