"""Choices that are settled by the text: `causal=False`, `scale=nan`.

Macros choose by literal arguments, and what they do not choose should not cost anything. Only truth
values are folded: numbers keep the arithmetic that the user wrote. Masks are taken away before, so
that nothing absent is lost with a branch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.presence import retyped
from redlang.ir.program import Apply, Expr, Literal
from redlang.ir.types import BOOL, Type

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def settle(expr: Expr, build: Builder) -> Expr:
    """Return a mask-free `expr` with conditions on literals decided; axes may be fewer."""
    return walk.rewrite(expr, _settle, rebuild=lambda node, parts: retyped(build, node, parts))


def _settle(expr: Expr) -> Expr:
    if not isinstance(expr, Apply):
        return expr
    arguments = expr.arguments
    match expr.op:
        case "isnan" if isinstance(arguments[0], Literal):
            return _truth(math.isnan(arguments[0].value), expr)
        case "not" if _known(arguments[0]) is not None:
            return _truth(not _known(arguments[0]), expr)
        case "and" | "or" if expr.type.dtype is BOOL:
            return _junction(expr, neutral=expr.op == "and")
        case "where" if _known(arguments[0]) is not None:
            return arguments[1] if _known(arguments[0]) else arguments[2]
        case op if op in _COMPARE:
            left, right = arguments
            if isinstance(left, Literal) and isinstance(right, Literal):
                return _truth(_COMPARE[op](left.value, right.value), expr)
            return expr
        case _:
            return expr


def _junction(expr: Apply, *, neutral: bool) -> Expr:
    """Decide `and` (neutral True) or `or` (neutral False) where one side is a literal."""
    for side, other in (expr.arguments, expr.arguments[::-1]):
        known = _known(side)
        if known is not None:
            return other if known is neutral else _truth(known, expr)
    return expr


def _known(expr: Expr) -> bool | None:
    if isinstance(expr, Literal) and expr.type.dtype is BOOL:
        return bool(expr.value)
    return None


def _truth(value: bool, expr: Expr) -> Expr:
    return Literal(value, Type(BOOL, weak=True), expr.span)
