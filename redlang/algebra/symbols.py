"""Expressions of the IR as SymPy expressions, and back.

Leaves and whatever SymPy has no law for become symbols, the same symbol for the same expression.
Conditions become symbols that are 0 or 1, so that `where(c, a, b)` is `c*a + (1-c)*b`. Floating
literals enter as the exact rationals that they are. Sub-expressions on their way to SymPy only ever
serve proofs and distances; what a kernel computes is built from what the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isfinite

import sympy as sp

from redlang.algebra.operators import NONNEGATIVE, Sign
from redlang.algebra.sharing import Pool
from redlang.algebra.signs import Signs
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Cast, Expr, Literal
from redlang.ir.types import F32

Given = Callable[[Expr], "sp.Expr | None"]


class Symbols:
    """Symbols for the expressions of one derivation."""

    def __init__(self, pool: Pool, signs: Signs) -> None:
        self.pool = pool
        self.signs = signs
        self._symbols: dict[int, sp.Symbol] = {}
        self._exprs: dict[sp.Symbol, Expr] = {}

    def symbol(self, expr: Expr) -> sp.Symbol:
        """Return the symbol that stands for `expr`."""
        expr = self.pool.intern(expr)
        if id(expr) not in self._symbols:
            number = len(self._symbols)
            if expr.type.dtype.kind == "bool":
                symbol = sp.Symbol(f"k{number}", nonnegative=True, integer=True)
            else:
                sign = self.signs.of(expr)
                symbol = sp.Symbol(f"v{number}", **_assumptions(sign))
            self._symbols[id(expr)] = symbol
            self._exprs[symbol] = expr
        return self._symbols[id(expr)]

    def expr(self, symbol: sp.Symbol) -> Expr:
        """Return what `symbol` stands for."""
        return self._exprs[symbol]

    def to_sympy(self, expr: Expr, given: Given = lambda _: None) -> sp.Expr:
        """Return `expr` as SymPy sees it; `given` says what becomes of chosen nodes."""
        expr = self.pool.intern(expr)
        done: dict[int, sp.Expr] = {}
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if not ready and (known := given(node)) is not None:
                done[id(node)] = known
            elif ready or not self._transparent(node):
                parts = [done[id(child)] for child in walk.children(node)] if ready else []
                done[id(node)] = self._node(node, parts)
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in walk.children(node))
        return done[id(expr)]

    def _transparent(self, node: Expr) -> bool:
        if isinstance(node, Apply):
            return node.op in _FUNCTIONS
        if isinstance(node, Cast):
            return not node.explicit and node.type.dtype.kind == "float"
        return False

    def _node(self, node: Expr, parts: list[sp.Expr]) -> sp.Expr:
        match node:
            case Apply(op) if op in _FUNCTIONS:
                return _FUNCTIONS[op](*parts)
            case Cast() if parts:
                return parts[0]
            case Literal(value) if isinstance(value, bool):
                return sp.Integer(int(value))
            case Literal(value) if isinstance(value, int):
                return sp.Integer(value)
            case Literal(value) if isfinite(value):
                fraction = Fraction(value)
                return sp.Rational(fraction.numerator, fraction.denominator)
            case _:
                return self.symbol(node)


def is_truth(symbol: sp.Symbol) -> bool:
    """Return whether a symbol stands for a condition."""
    return str(symbol.name).startswith("k")


def _assumptions(sign: Sign) -> dict[str, bool]:
    if sign is Sign.POSITIVE:
        return {"positive": True}
    if not sign & ~NONNEGATIVE:
        return {"nonnegative": True}
    if sign is Sign.NEGATIVE:
        return {"negative": True}
    return {"real": True}


_FUNCTIONS: dict[str, Callable[..., sp.Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": lambda a, b: a**b,
    "exp": sp.exp,
    "exp2": lambda a: sp.exp(sp.log(2) * a),
    "log": sp.log,
    "log2": lambda a: sp.log(a) / sp.log(2),
    "sqrt": sp.sqrt,
    "rsqrt": lambda a: 1 / sp.sqrt(a),
    "abs": sp.Abs,
    "sign": sp.sign,
    "tanh": sp.tanh,
    "sigmoid": lambda a: 1 / (1 + sp.exp(-a)),
    "erf": sp.erf,
    "sin": sp.sin,
    "cos": sp.cos,
    "maximum": lambda a, b: (a + b + sp.Abs(a - b)) / 2,
    "minimum": lambda a, b: (a + b - sp.Abs(a - b)) / 2,
    "where": lambda c, a, b: c * a + (1 - c) * b,
    "not": lambda c: 1 - c,
    "and": lambda a, b: a * b,
}
"""Element functions that SymPy knows; conditions are 0 or 1."""


class NotExpressible(Exception):  # noqa: N818 (an outcome, not an error that a user sees)
    """A SymPy expression has no form in the IR."""


def to_expr(value: sp.Expr, expr_of: Callable[[sp.Symbol], Expr], build: Builder) -> Expr:
    """Return a rational function of symbols as an expression.

    Raises:
        NotExpressible: It holds something else than sums, products, powers and exponentials.
    """
    if isinstance(value, sp.Symbol):
        return expr_of(value)
    if isinstance(value, sp.Integer):
        return build.convert(int(value), F32)
    if isinstance(value, sp.Rational):
        return build.convert(float(value), F32)
    if isinstance(value, sp.Add):
        return _sum(value, expr_of, build)
    if isinstance(value, sp.Mul):
        return _product(value, expr_of, build)
    if isinstance(value, sp.Pow) and isinstance(value.exp, sp.Integer):
        if value.exp < 0:
            return build.div(1.0, to_expr(1 / value, expr_of, build))
        return _product(sp.Mul(*([value.base] * int(value.exp)), evaluate=False), expr_of, build)
    if isinstance(value, sp.exp):
        return build.exp(to_expr(value.args[0], expr_of, build))
    raise NotExpressible(str(value))


def _sum(value: sp.Add, expr_of: Callable[[sp.Symbol], Expr], build: Builder) -> Expr:
    """Return a sum; positive parts come first, so that it needs no leading minus."""
    parts = sorted(value.args, key=lambda part: (part.could_extract_minus_sign(), str(part)))
    total: Expr | None = None
    for part in parts:
        if total is None:
            total = to_expr(part, expr_of, build)
        elif part.could_extract_minus_sign():
            total = build.sub(total, to_expr(-part, expr_of, build))
        else:
            total = build.add(total, to_expr(part, expr_of, build))
    assert total is not None
    return total


def _product(value: sp.Expr, expr_of: Callable[[sp.Symbol], Expr], build: Builder) -> Expr:
    above: Expr | None = None
    below: Expr | None = None
    negative = False
    for factor in value.args:
        if factor == -1:
            negative = not negative
        elif isinstance(factor, sp.Pow) and factor.exp.is_Integer and factor.exp < 0:
            part = to_expr(1 / factor, expr_of, build)
            below = part if below is None else build.mul(below, part)
        else:
            part = to_expr(factor, expr_of, build)
            above = part if above is None else build.mul(above, part)
    result = above if above is not None else build.convert(1, F32)
    if below is not None:
        result = build.div(result, below)
    return build.neg(result) if negative else result
