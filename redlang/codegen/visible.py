"""Conditions that say where along an axis elements take part, as ranges of the axis.

A condition such as `n <= m`, `m - n < w` or `n == label[m]` is true on one stretch of n for each m.
A loop over that stretch needs no test and never touches what is hidden. Conditions are taken
apart at their `and`s; parts that are no such comparison stay conditions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from redlang.ir import walk
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load, Ref
from redlang.ir.types import BOOL, I64, Type

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where along an axis a condition can hold.

    Attributes:
        first: Expressions none of which the index is below.
        stop: Expressions all of which the index is below.
        rest: What must hold besides, or None.
    """

    first: tuple[Expr, ...]
    stop: tuple[Expr, ...]
    rest: Expr | None


def stretch(condition: Expr, axis: str, known: Collection[str]) -> Stretch | None:
    """Return the stretch of `axis` to which `condition` confines it; None if it does not.

    Args:
        condition: A condition without masks.
        axis: The axis that is looped over.
        known: Axes that have an index outside the loop: bounds vary with these only.
    """
    first: list[Expr] = []
    stop: list[Expr] = []
    rest: Expr | None = None
    for part in conjuncts(condition):
        bounds = _solve(part, axis)
        if bounds is None or not _are_known(bounds, axis, known):
            rest = part if rest is None else _both(rest, part)
            continue
        low, high = bounds
        first += [low] if low is not None else []
        stop += [high] if high is not None else []
    if not first and not stop:
        return None
    return Stretch(tuple(first), tuple(stop), rest)


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """Return the parts of a conjunction."""
    if isinstance(condition, Apply) and condition.op == "and" and condition.type.dtype is BOOL:
        return tuple(part for side in condition.arguments for part in conjuncts(side))
    return (condition,)


def _both(left: Expr, right: Expr) -> Expr:
    axes = tuple(dict.fromkeys((*left.type.axes, *right.type.axes)))
    return Apply("and", (left, right), Type(BOOL, axes))


def _are_known(bounds: tuple[Expr | None, Expr | None], axis: str, known: Collection[str]) -> bool:
    axes = {a for bound in bounds if bound is not None for a in bound.type.axes}
    return axis not in axes and axes <= set(known)


def _solve(part: Expr, axis: str) -> tuple[Expr | None, Expr | None] | None:
    """Solve a comparison for the index: return (first, stop), either of which may be open."""
    if not isinstance(part, Apply) or part.op not in _MIRRORED:
        return None
    left, right = map(_without_casts, part.arguments)
    if left.type.dtype is not I64 or right.type.dtype is not I64:
        return None
    op = part.op
    if axis in right.type.axes:
        left, right, op = right, left, _MIRRORED[op]
    if axis in right.type.axes or axis not in left.type.axes:
        return None
    while not isinstance(left, Index):
        if not isinstance(left, Apply) or left.op not in ("add", "sub", "neg"):
            return None
        left, right, op = _peel(left, right, op, axis)
        if axis in right.type.axes or axis not in left.type.axes:
            return None
    after = _arithmetic("add", right, Literal(1, Type(I64)))
    return {
        "lt": (None, right),
        "le": (None, after),
        "gt": (after, None),
        "ge": (right, None),
        "eq": (right, after),
    }[op]


def _peel(left: Apply, right: Expr, op: str, axis: str) -> tuple[Expr, Expr, str]:
    """Move what does not hold the axis from the left side of a comparison to the right."""
    if left.op == "neg":
        (inner,) = left.arguments
        return inner, _arithmetic("sub", Literal(0, Type(I64)), right), _MIRRORED[op]
    a, b = left.arguments
    if axis in a.type.axes:
        other = _arithmetic("sub" if left.op == "add" else "add", right, b)
        return _without_casts(a), other, op
    if left.op == "add":
        return _without_casts(b), _arithmetic("sub", right, a), op
    return _without_casts(b), _arithmetic("sub", a, right), _MIRRORED[op]


def _arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    axes = tuple(dict.fromkeys((*a.type.axes, *b.type.axes)))
    return Apply(op, (a, b), Type(I64, axes))


def _without_casts(expr: Expr) -> Expr:
    """Look through conversions between integer types that keep every index."""
    while isinstance(expr, Cast) and not expr.explicit and expr.type.dtype is I64:
        if expr.operand.type.dtype is not I64:
            break
        expr = expr.operand
    return expr


def is_of_indices(expr: Expr) -> bool:
    """Say whether an expression is made of indices, sizes and scalars only: cheap to repeat."""
    return not any(isinstance(node, Load | Ref) for node in walk.nodes(expr))
