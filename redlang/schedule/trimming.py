"""Sweeps with some of their stages, and only the states and steps that these need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from redlang.ir import walk
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, Step, Sweep

AnyStep = TypeVar("AnyStep", bound=Step)


def trimmed(sweep: Sweep, read: Collection[str], known: Collection[str] = ()) -> Sweep:
    """Return a sweep that finishes only those of its stages that are read.

    Args:
        sweep: The sweep. It stays as it is if none of its stages or all are read.
        read: Names of stages.
        known: Those whose results are at hand when the sweep is finished.
    """
    stages = tuple(stage for stage in sweep.stages if stage in read)
    if not stages or stages == sweep.stages:
        return sweep
    finish = _alive([let for let in sweep.finish if let.name not in known], stages)
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
