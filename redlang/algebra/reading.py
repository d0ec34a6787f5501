"""Formulas as a reader wants them: by the user's names, without what means nothing in the reals.

Implicit conversions and factors of 1 are left out, and so is the rest of a mean, which is 0
wherever nothing is rounded. What a definition of the program stands for is called by its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from redlang.algebra.operators import Sign
from redlang.algebra.signs import Signs
from redlang.ir import walk
from redlang.ir.printing import to_text
from redlang.ir.program import Apply, Cast, Expr, Literal, Ref


class Reading:
    """How the expressions of one sweep are shown.

    Attributes:
        signs: Known signs; what is known to be 0 is left out of sums.
        names: Names of definitions by the ids of what they stand for.
    """

    def __init__(self, signs: Signs, names: Mapping[int, str] | None = None) -> None:
        self.signs = signs
        self.names = names or {}

    def text(self, expr: Expr) -> str:
        """Return the formula of `expr`."""
        return to_text(self._shown(expr, {}))

    def _shown(self, expr: Expr, done: dict[int, Expr]) -> Expr:
        if id(expr) not in done:
            done[id(expr)] = self._new(expr, done)
        return done[id(expr)]

    def _new(self, expr: Expr, done: dict[int, Expr]) -> Expr:
        if id(expr) in self.names:
            return Ref(self.names[id(expr)], expr.type)
        match expr:
            case Cast(operand, explicit=False):
                return self._shown(operand, done)
            case Apply("add" | "sub", (left, right)) if self.signs.of(right) is Sign.ZERO:
                return self._shown(left, done)
            case Apply("mul", (left, right)) if _is_one(left):
                return self._shown(right, done)
            case Apply("mul", (left, right)) if _is_one(right):
                return self._shown(left, done)
            case _:
                parts = [self._shown(child, done) for child in walk.children(expr)]
                return _whole(walk.rebuild(expr, parts))


def _is_one(expr: Expr) -> bool:
    while isinstance(expr, Cast):
        expr = expr.operand
    return isinstance(expr, Literal) and not isinstance(expr.value, bool) and expr.value == 1


def _whole(expr: Expr) -> Expr:
    """Return a float literal that is a whole number as that number."""
    if isinstance(expr, Literal) and isinstance(expr.value, float) and expr.value.is_integer():
        return Literal(int(expr.value), expr.type)
    return expr
