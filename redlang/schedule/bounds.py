"""Interval analysis of predicates over tiles: which tiles hold nothing, which are full.

For a predicate p in axis indices, sizes and scalars, `possible(p)` is false only if p is false at
every element of the current ranges, and `certain(p)` is true only if p is true at every element.
Both are expressions over the bounds `n.first` and `n.last` of the ranges, so one mechanism serves
causal masks, windows, prefixes and any combination of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redlang.ir.build import Builder
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load, Ref, Scalar, Size
from redlang.ir.types import I64, Type

Interval = tuple[Expr, Expr]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What else is known of the current ranges.

    Attributes:
        is_one: Whether an expression has one value over them.
        range: Bounds of an element that an expression reads; None if there are none.
    """

    is_one: Callable[[Expr], bool] = lambda expr: False
    range: Callable[[Expr], Interval | None] = lambda expr: None


_NOTHING = Knowledge()


def bound(axis: str, end: str) -> Ref:
    """Return the `first` or `last` index of the current range of `axis`."""
    return Ref(f"{axis}.{end}", Type(I64))


def ends(expr: Expr, builder: Builder) -> Interval | None:
    """Return expressions for the least and greatest value of an integer over the ranges."""
    return _interval(expr, builder, _NOTHING)


def possible(predicate: Expr, builder: Builder, known: Knowledge = _NOTHING) -> Expr | None:
    """Return a test that is false only for tiles without a visible element; None if unknown."""
    return _truth(predicate, builder, known, any_element=True)


def certain(predicate: Expr, builder: Builder, known: Knowledge = _NOTHING) -> Expr | None:
    """Return a test that is true only for tiles without a hidden element; None if unknown."""
    return _truth(predicate, builder, known, any_element=False)


def _truth(
    predicate: Expr, builder: Builder, known: Knowledge, *, any_element: bool
) -> Expr | None:
    match predicate:
        case Apply(op="and" | "or" as op, arguments=(a, b)):
            left = _truth(a, builder, known, any_element=any_element)
            right = _truth(b, builder, known, any_element=any_element)
            # An unknown part may be true or false; what is left is safe in one case each.
            if left is None or right is None:
                return (left or right) if (op == "and") is any_element else None
            return builder.apply(op, left, right)
        case Apply(op="not", arguments=(a,)):
            inner = _truth(a, builder, known, any_element=not any_element)
            return None if inner is None else builder.apply("not", inner)
        case Apply(op="lt" | "le" | "gt" | "ge" as op, arguments=(a, b)):
            return _ordered(op, a, b, builder, known, any_element=any_element)
        case Apply(op="eq", arguments=(a, b)):
            x, y = _interval(a, builder, known), _interval(b, builder, known)
            if x is None or y is None:
                return None
            low, high = (x[0], y[1]), (x[1], y[0])
            if any_element:
                tests = builder.apply("le", *low), builder.apply("ge", *high)
            else:
                tests = builder.apply("eq", low[0], low[1]), builder.apply("eq", *high)
            return builder.apply("and", *tests)
        case Apply(op="ne", arguments=(a, b)):
            equal = Apply("eq", (a, b), predicate.type)
            test = _truth(equal, builder, known, any_element=not any_element)
            return None if test is None else builder.apply("not", test)
        case Literal() | Scalar() if not predicate.type.axes:
            return predicate
        case _:
            return None


def _ordered(
    op: str, a: Expr, b: Expr, builder: Builder, known: Knowledge, *, any_element: bool
) -> Expr | None:
    """Compare the ends of two intervals that make `a op b` easiest, or hardest, to satisfy."""
    x, y = _interval(a, builder, known), _interval(b, builder, known)
    if x is None or y is None:
        return None
    smallest_left = (op in ("lt", "le")) is any_element
    left, right = (x[0], y[1]) if smallest_left else (x[1], y[0])
    return builder.apply(op, left, right)


def _interval(expr: Expr, builder: Builder, known: Knowledge) -> Interval | None:
    if expr.type.dtype.kind not in ("int", "uint"):
        return None
    match expr:
        case Index(axis=axis):
            return bound(axis, "first"), bound(axis, "last")
        case Load():
            return (expr, expr) if known.is_one(expr) else known.range(expr)
        case Literal() | Size() | Scalar():
            return expr, expr
        case _ if known.is_one(expr):
            return expr, expr
        case Cast(operand=operand, explicit=False):
            return _interval(operand, builder, known)
        case Apply(op="neg", arguments=(a,)):
            x = _interval(a, builder, known)
            return None if x is None else (builder.neg(x[1]), builder.neg(x[0]))
        case Apply(op="add" | "sub" | "mul" | "floordiv" as op, arguments=(a, b)):
            return _arithmetic(op, a, b, builder, known)
        case Apply(op="minimum" | "maximum" as op, arguments=(a, b)):
            x, y = _interval(a, builder, known), _interval(b, builder, known)
            if x is None or y is None:
                return None
            return builder.apply(op, x[0], y[0]), builder.apply(op, x[1], y[1])
        case _:
            return None


def _arithmetic(op: str, a: Expr, b: Expr, builder: Builder, known: Knowledge) -> Interval | None:
    x, y = _interval(a, builder, known), _interval(b, builder, known)
    if x is None or y is None:
        return None
    if op == "add":
        return builder.add(x[0], y[0]), builder.add(x[1], y[1])
    if op == "sub":
        return builder.sub(x[0], y[1]), builder.sub(x[1], y[0])
    factor = y[0]
    if not isinstance(factor, Literal) or factor.value <= 0 or y[0] != y[1]:
        # Only a positive literal keeps the order of the two ends for certain.
        return None
    return builder.apply(op, x[0], factor), builder.apply(op, x[1], factor)
