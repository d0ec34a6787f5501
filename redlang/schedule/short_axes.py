"""Short axes of results that much work does not have: a thread computes for all of them at once.

sum[j](w[j] * f(p[i], q[j]) * q[j, c])    -->    a unit has i; f is computed once for all c
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.incremental import Sweep
from redlang.ir.program import Apply, Expr, Index, Load, Ref
from redlang.schedule.uses import Uses

LITTLE = 4
"""Operators of an element that may be computed anew for each place of a short axis."""


def shared_axes(uses: Uses, sweep: Sweep, short: frozenset[str]) -> frozenset[str]:
    """Return the short axes of a sweep's stages that much of its work on elements lacks."""
    axes = uses.all_axes(sweep) & short - set(sweep.axes)
    nodes = list(elements(uses, sweep)) if axes else []
    return frozenset(a for a in axes if _is_shared(a, nodes))


def _is_shared(axis: str, nodes: Sequence[Apply | Load]) -> bool:
    """Say whether much work lacks an axis, or all that is read from memory does.

    So it is for the coordinates of points, which lie side by side: a thread has whole points.
    """
    lacking = [node for node in nodes if axis not in node.type.axes]
    loads = [node for node in nodes if isinstance(node, Load)]
    much = len(lacking) - len(loads) > LITTLE
    if much or not loads:
        return much
    return set(loads) <= set(lacking) or all(_ends_in(load, axis) for load in loads)


def _ends_in(load: Load, axis: str) -> bool:
    """Say whether an axis is the last one of an array: neighbours along it are adjacent, mostly."""
    last = load.subscripts[-1]
    return isinstance(last, Index) and last.axis == axis


def elements(uses: Uses, sweep: Sweep) -> Iterator[Apply | Load]:
    """Yield what is read and computed of each element of a sweep, in sweeps inside of it too."""
    todo: list[Expr] = []
    swept, seen = set(sweep.axes), set[str](sweep.stages)
    for stage in sweep.stages:
        todo += walk.expressions(uses.definitions[stage].value)
    while todo:
        for node in walk.nodes(todo.pop()):
            if not swept & set(node.type.axes):
                continue
            if isinstance(node, Ref) and node.name in uses.definitions and node.name not in seen:
                seen.add(node.name)
                todo += walk.expressions(uses.definitions[node.name].value)
            elif isinstance(node, Apply | Load):
                yield node


def joined_sweeps(uses: Uses, sweeps: Sequence[Sweep]) -> list[Sweep]:
    """Return sweeps over the same axes that do not read each other as one."""
    found: list[Sweep] = []
    for sweep in sweeps:
        last = found[-1] if found else None
        if last is None or last.axes != sweep.axes or _reads(uses, sweep, last):
            found.append(sweep)
        else:
            found[-1] = _both(last, sweep)
    return found


def _reads(uses: Uses, sweep: Sweep, other: Sweep) -> bool:
    todo, seen = [sweep], set[int]()
    while todo:
        for read in uses.read_by(todo.pop()):
            if set(read.stages) & set(other.stages):
                return True
            if id(read) not in seen:
                seen.add(id(read))
                todo.append(read)
    return False


def _both(one: Sweep, other: Sweep) -> Sweep:
    joint = (*one.joint, *other.joint) if one.joint and other.joint else ()
    return replace(
        one,
        stages=(*one.stages, *other.stages),
        states=(*one.states, *other.states),
        update=(*one.update, *other.update),
        commits=(*one.commits, *other.commits),
        merge=(*one.merge, *other.merge),
        merge_commits=(*one.merge_commits, *other.merge_commits),
        finish=(*one.finish, *other.finish),
        joint=joint,
    )
