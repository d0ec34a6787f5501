"""The part of a loop in which everything that is read is there: no tests, adjacent elements.

    for n in range(first, stop):                        for n in range(first, from): as before
        y[n] = select((n - 1 >= 0) & (n - 1 < size), -->  for n in range(from, to): y[n] = x[n - 1]
                      x[clip(n - 1, 0, size - 1)], 0)   for n in range(to, stop): as before

A subscript that may leave its axis is held inside by `clip`, and a condition says where it was
inside anyway. Where a bound of the loop implies the condition, both go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from redlang.codegen.nesting import For, Leaf, Node
from redlang.codegen.steps import Assign, Step, step_expressions
from redlang.codegen.visible import Stretch, conjuncts, stretch
from redlang.ir import loops, walk
from redlang.ir.program import Apply, Expr, Literal, Load, Size
from redlang.ir.types import BOOL, I64, Type

TRUE = Literal(True, Type(BOOL))


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds of expressions that stand for places along an axis.

    Attributes:
        reached: Those that are not below 0.
        below: Those that are below the extent of an axis.
    """

    reached: frozenset[Expr]
    below: frozenset[tuple[Expr, str]]

    def hold(self, condition: Expr) -> bool:
        """Say whether a comparison is one of these facts."""
        match condition:
            case Apply(op="ge", arguments=(place, Literal(value=0))):
                return place in self.reached
            case Apply(op="lt", arguments=(place, Size(axis=axis))):
                return (place, axis) in self.below
            case _:
                return False


def facts_of(conditions: Iterable[Expr]) -> Facts:
    """Return the facts among comparisons that hold."""
    reached: set[Expr] = set()
    below: set[tuple[Expr, str]] = set()
    for condition in conditions:
        match condition:
            case Apply(op="ge", arguments=(place, Literal(value=0))):
                reached.add(place)
            case Apply(op="lt", arguments=(place, Size(axis=axis))):
                below.add((place, axis))
            case _:
                pass
    return Facts(frozenset(reached), frozenset(below))


def settled(expr: Expr, facts: Facts) -> Expr:
    """Return an expression without the tests and clips that facts make superfluous."""

    def rule(node: Expr) -> Expr:
        match node:
            case Apply(op="ge" | "lt") if facts.hold(node):
                return TRUE
            case Apply(op="and", arguments=(left, right)) if TRUE in (left, right):
                return right if left == TRUE else left
            case Apply(op="where", arguments=(condition, value, _)) if condition == TRUE:
                return value
            case Apply(op="clip", arguments=(place, Literal(value=0), last)):
                axis = _axis_of_last(last)
                inside = place in facts.reached and (place, axis) in facts.below
                return place if inside else node
            case Apply(op="minimum", arguments=(place, last)):
                return place if (place, _axis_of_last(last)) in facts.below else node
            case _:
                return node

    return walk.rewrite(expr, rule)


def _axis_of_last(last: Expr) -> str:
    """Return the axis of which `last` is the last index, empty if it is of none."""
    match last:
        case Apply(op="sub", arguments=(Size(axis=axis), Literal(value=1))):
            return axis
        case _:
            return ""


def settled_step(step: Step, facts: Facts) -> Step:
    """Return a step without the tests and clips that facts make superfluous."""
    match step:
        case Assign() | loops.Store():
            return replace(step, value=settled(step.value, facts))
        case loops.Fold():
            condition = None if step.condition is None else settled(step.condition, facts)
            values = tuple(settled(value, facts) for value in step.values)
            return replace(step, values=values, condition=None if condition == TRUE else condition)
        case _:
            return step


@dataclass(frozen=True, slots=True)
class Interior:
    """A loop's body where a stretch of its axis lets it do without tests."""

    stretch: Stretch
    body: list[Node]


def interior(node: For, known: Collection[str]) -> Interior | None:
    """Return the part of an innermost loop in which clipped subscripts are inside anyway.

    `known` are the axes that have an index outside of the loop.
    """
    steps = [leaf.step for leaf in node.body if isinstance(leaf, Leaf)]
    if len(steps) != len(node.body):
        return None
    guards = dict.fromkeys(guard for step in steps for guard in _guards(step))
    found = [(guard, stretch(guard, node.axis, known)) for guard in guards]
    solved = [(guard, part) for guard, part in found if part is not None and part.rest is None]
    if not solved:
        return None
    first = tuple(dict.fromkeys(bound for _, part in solved for bound in part.first))
    stop = tuple(dict.fromkeys(bound for _, part in solved for bound in part.stop))
    facts = facts_of(guard for guard, _ in solved)
    body: list[Node] = [Leaf(settled_step(step, facts)) for step in steps]
    return Interior(Stretch(first, stop, None), body)


def _guards(step: Step) -> Iterator[Expr]:
    """Yield the comparisons that hold where the clips of a step's subscripts change nothing."""
    for expr in step_expressions(step):
        for load in walk.nodes(expr):
            for part in load.subscripts if isinstance(load, Load) else ():
                match part:
                    case Apply(op="clip", arguments=(place, Literal(value=0), last)):
                        yield _comparison("ge", place, Literal(0, Type(I64)))
                    case Apply(op="minimum", arguments=(place, last)):
                        pass
                    case _:
                        continue
                axis = _axis_of_last(last)
                if axis:
                    yield _comparison("lt", place, Size(axis, Type(I64)))


def _comparison(op: str, left: Expr, right: Expr) -> Expr:
    return Apply(op, (left, right), Type(BOOL, left.type.axes))


def implied(condition: Expr, rest: Expr | None) -> Facts:
    """Return what a condition says beside what is left of it."""
    left = set() if rest is None else set(conjuncts(rest))
    return facts_of(part for part in conjuncts(condition) if part not in left)
