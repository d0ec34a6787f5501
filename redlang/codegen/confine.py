"""Loops that run only where elements take part.

    for n in range(first, stop):                  for n in range(first, from): left = 0
        s += select(n <= m, p, 0)           -->   for n in range(from, to): s += p; left = p
        left = select(n <= m, p, 0)               for n in range(to, stop): left = 0

Allowed when one condition confines the loop's axis to a stretch, and what remains to be done
outside of it is to write constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from redlang.codegen.interior import implied, settled_step
from redlang.codegen.nesting import For, Leaf, Node
from redlang.codegen.steps import Assign, Step, step_reads
from redlang.codegen.storage import Storage
from redlang.codegen.visible import Stretch, stretch
from redlang.ir import loops
from redlang.ir.program import Apply, Expr, Literal


@dataclass(frozen=True, slots=True)
class Confined:
    """A loop's body inside and outside of a stretch of its axis."""

    stretch: Stretch
    inside: list[Node]
    outside: list[Node]


def confined(node: For, known: Iterable[str], storage: dict[str, Storage]) -> Confined | None:
    """Return the loop split by the condition that confines its axis; None if none does.

    `known` are the axes that have an index outside of the loop.
    """
    if not _is_simple(node.body):
        return None
    known = frozenset(known)
    conditions = dict.fromkeys(c for step in _steps(node.body) for c in _conditions(step))
    found = [(c, stretch(c, node.axis, known)) for c in conditions]
    confining = [(c, s) for c, s in found if s is not None]
    if len(confining) != 1:
        return None
    ((condition, where),) = confining
    facts = implied(condition, where.rest)
    inside = _mapped(
        node.body, lambda step: settled_step(_inside(step, condition, where.rest), facts)
    )
    outside = _without_idle(_mapped(node.body, lambda step: _outside(step, condition)), storage)
    if not all(_writes_constant(step) for step in _steps(outside)):
        return None
    return Confined(where, inside, outside)


def _is_simple(nodes: Iterable[Node]) -> bool:
    """Say whether there is nothing but steps and loops over elements."""
    return all(isinstance(n, Leaf) or (isinstance(n, For) and _is_simple(n.body)) for n in nodes)


def _steps(nodes: Iterable[Node]) -> Iterator[Step]:
    for node in nodes:
        match node:
            case Leaf(step):
                yield step
            case For(body=body):
                yield from _steps(body)
            case _:
                pass


def _conditions(step: Step) -> list[Expr]:
    """Return the conditions under which a step does something else than write a constant."""
    if isinstance(step, loops.Fold) and step.condition is not None:
        return [step.condition]
    if isinstance(step, Assign | loops.Store) and _is_masked(step.value):
        assert isinstance(step.value, Apply)
        return [step.value.arguments[0]]
    return []


def _is_masked(value: Expr) -> bool:
    return (
        isinstance(value, Apply)
        and value.op == "where"
        and isinstance(value.arguments[2], Literal)
        and bool(value.arguments[0].type.axes)
    )


def _inside(step: Step, condition: Expr, rest: Expr | None) -> Step:
    """Return what a step does where the stretch's part of the condition holds."""
    if condition not in _conditions(step):
        return step
    if isinstance(step, loops.Fold):
        return replace(step, condition=rest)
    assert isinstance(step, Assign | loops.Store)
    assert isinstance(step.value, Apply)
    _, value, otherwise = step.value.arguments
    if rest is not None:
        value = replace(step.value, arguments=(rest, value, otherwise))
    return replace(step, value=value)


def _outside(step: Step, condition: Expr) -> Step | None:
    """Return what a step does where the condition does not hold."""
    if condition not in _conditions(step):
        return step
    if isinstance(step, loops.Fold):
        return None
    assert isinstance(step, Assign | loops.Store)
    assert isinstance(step.value, Apply)
    return replace(step, value=step.value.arguments[2])


def _mapped(nodes: list[Node], change: Callable[[Step], Step | None]) -> list[Node]:
    """Return the nodes with each step changed, or left out."""
    done: list[Node] = []
    for node in nodes:
        match node:
            case Leaf(step):
                new = change(step)
                done += [Leaf(new)] if new is not None else []
            case For(axis, body):
                inner = _mapped(body, change)
                done += [For(axis, inner)] if inner else []
            case _:
                done.append(node)
    return done


def _without_idle(nodes: list[Node], storage: dict[str, Storage]) -> list[Node]:
    """Return the nodes without local variables that nothing here reads."""
    while True:
        read = frozenset[str]().union(*(step_reads(step) for step in _steps(nodes)))

        def useful(step: Step, read: frozenset[str] = read) -> Step | None:
            if not isinstance(step, Assign) or storage[step.name].in_memory:
                return step
            return step if step.name in read else None

        kept = _mapped(nodes, useful)
        if len(list(_steps(kept))) == len(list(_steps(nodes))):
            return kept
        nodes = kept


def _writes_constant(step: Step) -> bool:
    return isinstance(step, Assign | loops.Store) and isinstance(step.value, Literal)
