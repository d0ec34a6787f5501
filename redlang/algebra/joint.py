"""Joining many parts of a sweep at once: agree on reference points, move there, then reduce.

A merge of two parts moves both to a common reference point and joins what they have there. Many
parts can move to one point in one step each; what is left are plain reductions, without the moves
of every pair. Any reference point is exact, so the mean of the parts' centres serves as well as the
one that pairs would arrive at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from redlang.ir import walk
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial
from redlang.ir.program import Expr, Ref

PLAIN = {"sum": "sum", "count": "sum", "max": "max", "min": "min", "any": "any", "all": "all"}
"""The reduction of partial results, for each reduction whose partial results are one number."""

Steps = tuple[Each | Partial | Let, ...]


def joint(
    merge: Sequence[Combine | Let],
    commits: Iterable[Commit],
    gathered: Mapping[str, Sequence[Each | Partial | Let]],
) -> Steps:
    """Return the steps that join any number of parts, none where pairs have to be joined.

    Args:
        merge: The steps that join parts `a` and `b`.
        commits: What becomes of them.
        gathered: For every reference point that pairs choose, steps to one for many parts.
    """
    found: list[Each | Partial | Let] = []
    # Names with a value of every part, and those that all parts have in common.
    parts: set[str] = set()
    common: set[str] = set()
    for step in merge:
        match step:
            case Let(name=name) if name in gathered:
                found += [_own(s) for s in gathered[name]]
                common |= {n for s in gathered[name] for n in _names(s)}
            case Let(name=name, value=value):
                refs = walk.refs(value)
                if all(ref in common for ref in refs):
                    common.add(name)
                    found.append(Let(name, value))
                elif all(ref.startswith("a.") or ref in parts or ref in common for ref in refs):
                    parts.add(name)
                    found.append(Each(name, _of_part(value)))
            case Combine(names=names, op=op, left=left, types=types):
                if op not in PLAIN or step.k is not None or len(names) != 1:
                    return ()
                if not (left[0].startswith("a.") or left[0] in parts):
                    return ()
                value = _of_part(Ref(left[0], types[0]))
                found.append(Partial(names, PLAIN[op], (value,), None, types))
                common.add(names[0])
    if not all(commit.value in common for commit in commits):
        return ()
    return _needed(found, {commit.value for commit in commits})


def _names(step: Each | Partial | Let) -> tuple[str, ...]:
    return step.names if isinstance(step, Partial) else (step.name,)


def _values(step: Each | Partial | Let) -> tuple[Expr, ...]:
    return step.values if isinstance(step, Partial) else (step.value,)


def _own(step: Each | Partial | Let) -> Each | Partial | Let:
    """Return a step with each part's own states in place of those of the left one."""
    match step:
        case Partial(names=names, op=op, values=values, types=types):
            return Partial(names, op, tuple(map(_of_part, values)), None, types)
        case Each(name=name, value=value):
            return Each(name, _of_part(value))
        case Let():
            return step


def _of_part(value: Expr) -> Expr:
    names = {ref: ref.removeprefix("a.") for ref in walk.refs(value) if ref.startswith("a.")}
    return walk.rename(value, names)


def _needed(steps: Sequence[Each | Partial | Let], needed: set[str]) -> Steps:
    """Return the steps that lead to the names that are needed."""
    kept: list[Each | Partial | Let] = []
    for step in reversed(steps):
        if not needed.isdisjoint(_names(step)):
            kept.append(step)
            needed |= frozenset[str]().union(*map(walk.refs, _values(step)))
    return tuple(reversed(kept))
