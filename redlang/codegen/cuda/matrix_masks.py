"""Predicates as bounds: which elements of a tile a condition hides, at one comparison an element.

A condition over rows and one column axis is taken apart into bounds of the column's index,

    n <= m + size(n) - size(m)   -->   high = m + size(n) - size(m)
    (left < 0) | (n >= m - left)   -->   low = where(left < 0, -2^62, m - left)

which are computed once a row and tile; what is left over is tested element by element. The same
analysis turns the test for empty tiles into the first and last tile of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redlang.ir import walk
from redlang.ir.build import Builder, literal
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Ref

UNBOUNDED = 1 << 62

Symbol = Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A condition on one integer: at least every `low`, at most every `high`, and `rest`."""

    low: tuple[Expr, ...] = ()
    high: tuple[Expr, ...] = ()
    rest: Expr | None = None


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the parts of a conjunction."""
    if isinstance(condition, Apply) and condition.op == "and":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]


def disjuncts(condition: Expr) -> list[Expr]:
    """Return the parts of a disjunction."""
    if isinstance(condition, Apply) and condition.op == "or":
        return [part for argument in condition.arguments for part in disjuncts(argument)]
    return [condition]


def bounds_of(condition: Expr, lower: Symbol, upper: Symbol, builder: Builder) -> Bounds:
    """Take a condition apart.

    Args:
        condition: What holds for elements that take part.
        lower: Recognises the integer in comparisons that bound it from below.
        upper: Recognises it in those that bound it from above.
        builder: The kernel's.
    """
    low: list[Expr] = []
    high: list[Expr] = []
    rest: list[Expr | None] = []
    for part in conjuncts(condition):
        either = _disjunction(part, lower, upper, builder)
        if either is not None:
            (low if either[0] == "low" else high).append(either[1])
            continue
        unless, test = _excused(part, lambda e: lower(e) or upper(e))
        found = _bound(test, lower, upper, builder)
        if found is None or _reads(found[1], lambda e: lower(e) or upper(e)):
            rest.append(part)
            continue
        side, bound = found
        if unless is not None:
            free = literal(-UNBOUNDED if side == "low" else UNBOUNDED)
            bound = builder.where(unless, free, bound)
        (low if side == "low" else high).append(bound)
    return Bounds(tuple(low), tuple(high), builder.conjunction(rest))


def index_bounds(condition: Expr, axis: str, builder: Builder) -> Bounds:
    """Take a condition apart into bounds of the index of `axis`."""

    def symbol(expr: Expr) -> bool:
        return isinstance(expr, Index) and expr.axis == axis

    return bounds_of(condition, symbol, symbol, builder)


def apart(condition: Expr, axis: str, builder: Builder) -> tuple[Expr | None, Expr | None]:
    """Return the part of a condition that is bounds of the index of `axis`, and what is left."""
    bounds: list[Expr | None] = []
    rest: list[Expr | None] = []
    for part in conjuncts(condition):
        (bounds if index_bounds(part, axis, builder).rest is None else rest).append(part)
    return builder.conjunction(bounds), builder.conjunction(rest)


def existence(condition: Expr, axis: str, start: Expr, stop: Expr, builder: Builder) -> Expr | None:
    """Return whether a condition holds for an index of `axis`; None where bounds do not say.

    Args:
        condition: What holds for elements that take part.
        axis: The axis.
        start: The first index.
        stop: The end of indices.
        builder: The kernel's.
    """
    always = index_bounds(condition, axis, builder)
    parts = (
        [Bounds()]
        if always.rest is None
        else [index_bounds(part, axis, builder) for part in disjuncts(always.rest)]
    )
    if any(part.rest is not None for part in parts):
        return None
    last = builder.sub(stop, 1)
    lows = [greatest((*always.low, *part.low, start), builder) for part in parts]
    highs = [least((*always.high, *part.high, last), builder) for part in parts]
    ranges = zip(lows, highs, strict=True)
    return builder.disjunction(builder.apply("le", low, high) for low, high in ranges)


def tile_bounds(some: Expr, axis: str, builder: Builder) -> Bounds:
    """Take the test for a tile's worth apart into bounds of the elements that a tile must hold."""

    def end(name: str) -> Symbol:
        return lambda expr: isinstance(expr, Ref) and expr.name == f"{axis}.{name}"

    return bounds_of(some, end("last"), end("first"), builder)


def _excused(part: Expr, symbol: Symbol) -> tuple[Expr | None, Expr]:
    """Return p, test for `p | test` where p does not read the integer; else None and the part."""
    if isinstance(part, Apply) and part.op == "or":
        a, b = part.arguments
        for excuse, test in ((a, b), (b, a)):
            if not _reads(excuse, symbol):
                return excuse, test
    return None, part


def _disjunction(
    part: Expr, lower: Symbol, upper: Symbol, builder: Builder
) -> tuple[str, Expr] | None:
    """Return the bound that a disjunction of bounds on one side amounts to."""
    if not isinstance(part, Apply) or part.op != "or":
        return None
    found = [bounds_of(argument, lower, upper, builder) for argument in part.arguments]
    if any(b.rest is not None for b in found):
        return None
    if all(len(b.high) == 1 and not b.low for b in found):
        return "high", greatest((b.high[0] for b in found), builder)
    if all(len(b.low) == 1 and not b.high for b in found):
        return "low", least((b.low[0] for b in found), builder)
    return None


def _reads(expr: Expr, symbol: Symbol) -> bool:
    return any(symbol(node) for node in walk.nodes(expr))


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _bound(test: Expr, lower: Symbol, upper: Symbol, builder: Builder) -> tuple[str, Expr] | None:
    if not isinstance(test, Apply) or test.op not in _MIRRORED:
        return None
    left, right = test.arguments
    if {left.type.dtype.kind, right.type.dtype.kind} - {"int"}:
        return None
    for side, symbol, ops in (("low", lower, ("ge", "gt")), ("high", upper, ("le", "lt"))):
        a, b = linear(left, symbol, builder), linear(right, symbol, builder)
        if a is None or b is None:
            continue
        factor = a[0] - b[0]
        if abs(factor) != 1:
            continue
        bound = builder.sub(b[1], a[1]) if factor == 1 else builder.sub(a[1], b[1])
        op = test.op if factor == 1 else _MIRRORED[test.op]
        if op not in ops:
            continue
        if op in ("lt", "gt"):
            bound = builder.sub(bound, 1) if op == "lt" else builder.add(bound, 1)
        return side, bound
    return None


def linear(expr: Expr, symbol: Symbol, builder: Builder) -> tuple[int, Expr] | None:
    """Return k, r with expr = k * symbol + r and r free of the symbol, or None."""
    if symbol(expr):
        return 1, literal(0)
    if not _reads(expr, symbol):
        return 0, expr
    match expr:
        case Cast(operand=operand, explicit=False) if expr.type.dtype.kind == "int":
            return linear(operand, symbol, builder)
        case Apply(op="neg", arguments=(a,)):
            x = linear(a, symbol, builder)
            return None if x is None else (-x[0], builder.neg(x[1]))
        case Apply(op="add" | "sub" as op, arguments=(a, b)):
            x, y = linear(a, symbol, builder), linear(b, symbol, builder)
            if x is None or y is None:
                return None
            if op == "add":
                return x[0] + y[0], builder.add(x[1], y[1])
            return x[0] - y[0], builder.sub(x[1], y[1])
        case Apply(op="mul", arguments=(a, b)):
            for factor, other in ((a, b), (b, a)):
                if isinstance(factor, Literal):
                    x = linear(other, symbol, builder)
                    if x is None:
                        return None
                    return x[0] * int(factor.value), builder.mul(x[1], factor)
            return None
        case _:
            return None


def least(exprs: Iterable[Expr], builder: Builder) -> Expr:
    """Return the minimum of integers."""
    return _joined("minimum", exprs, builder)


def greatest(exprs: Iterable[Expr], builder: Builder) -> Expr:
    """Return the maximum of integers."""
    return _joined("maximum", exprs, builder)


def _joined(op: str, exprs: Iterable[Expr], builder: Builder) -> Expr:
    first, *rest = exprs
    for expr in rest:
        first = builder.apply(op, first, expr)
    return first
