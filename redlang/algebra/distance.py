"""How far a reference point lies from a context, without subtracting two rounded means.

A mean that is kept about c is c + r with r = S1 / n. Its distance from c is r itself, known to full
relative precision, while c - fl(c + r) would lose what r has beyond the last digit of c. So
contexts are written in terms of states, and c is made to cancel by algebra before anything is
rounded.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from redlang.algebra.budget import OutOfBudgetError, within
from redlang.algebra.incremental import Emitter
from redlang.algebra.signs import Signs
from redlang.algebra.symbols import NotExpressible, Symbols, to_expr
from redlang.algebra.transport import Centre, Maximum, Reference
from redlang.ir import walk
from redlang.ir.program import Apply, Expr, Literal, Ref

LARGEST_MEAN = 60
"""Operations in a context from which a centre can cancel: means are short formulas."""


class Distances:
    """Distances between the reference points and the contexts of one sweep.

    Attributes:
        results: The finish of each stage so far, without the guard for empty rows.
        rounded: Means that are kept as they were rounded, with their rest beside them.
    """

    def __init__(self, emitter: Emitter, signs: Signs, rounded: Iterable[Expr]) -> None:
        self.emitter = emitter
        self.build = emitter.build
        self.rounded = {id(emitter.pool.intern(expr)) for expr in rounded}
        self.results: dict[str, Expr] = {}
        self.symbols = Symbols(emitter.pool, signs)
        self._centres: set[sp.Symbol] = set()
        self._formal: dict[str, sp.Expr] = {}

    def of(self, reference: Reference, context: Expr) -> Expr:
        """Return the distance of a reference point from a context, c - u."""
        build = self.build
        if isinstance(reference, Centre) and not reference.moves:
            return build.neg(context)
        if isinstance(context, Apply) and context.op == "where":
            condition, then, otherwise = context.arguments
            return build.where(condition, self.of(reference, then), self.of(reference, otherwise))
        kept = self.emitter.point(reference).kept
        if isinstance(reference, Centre):
            context = build.convert(context, reference.dtype)
        for point in self.emitter.centres():
            self._centres.add(self.symbols.symbol(point.kept))
        try:
            return within(
                lambda: self._exact(kept, context), size=walk.tree_size(context, self.results.get)
            )
        except (OutOfBudgetError, NotExpressible):
            return build.sub(kept, context)

    def is_near(self, reference: Maximum, context: Expr) -> bool:
        """Return whether a context is the running maximum itself, or a number in its place."""
        match context:
            case Apply("where", (_, then, otherwise)):
                return self.is_near(reference, then) and self.is_near(reference, otherwise)
            case Ref(name):
                kept = self.emitter.point(reference).kept
                assert isinstance(kept, Apply)  # it is clipped
                return kept.arguments[0] == self.results.get(name)
            case _:
                return isinstance(context, Literal)

    def _exact(self, kept: Expr, context: Expr) -> Expr:
        """Return kept - context with centres taken together first."""
        build = self.build
        formal = self._sympy(context)
        if not formal.free_symbols & self._centres or formal.count_ops() > LARGEST_MEAN:
            return build.sub(kept, context)
        formal = _expanded(formal)
        parts = sp.Add.make_args(formal)
        others = [part for part in parts if part in self._centres]
        if not others or self.symbols.symbol(context) in others:
            return build.sub(kept, context)
        rest = formal - sum(others)
        if rest.free_symbols & self._centres:
            return build.sub(kept, context)
        near: Expr | None = kept
        symbol = self.symbols.symbol(kept)
        for other in others:
            if other == symbol and near is kept:
                near = None
            else:
                near = build.sub(
                    near or build.convert(0.0, kept.type.dtype), self.symbols.expr(other)
                )
        if rest == 0:
            return near or build.convert(0.0, kept.type.dtype)
        remainder = to_expr(rest, self.symbols.expr, build)
        return build.neg(remainder) if near is None else build.sub(near, remainder)

    def _sympy(self, expr: Expr) -> sp.Expr:
        return self.symbols.to_sympy(expr, self._given)

    def _given(self, node: Expr) -> sp.Expr | None:
        if id(node) in self.rounded:
            return self.symbols.symbol(node)
        if isinstance(node, Ref):
            if node.name in self.results:
                if node.name not in self._formal:
                    self._formal[node.name] = self._sympy(self.results[node.name])
                return self._formal[node.name]
            if node.name in self.emitter.whole_counts:
                sizes = [self.symbols.symbol(self.build.size(a)) for a in self.emitter.swept()]
                return sp.Mul(*sizes)
        return None


def _expanded(formal: sp.Expr) -> sp.Expr:
    """Return a sum of products; exponentials stay whole, since exp(a) exp(-b) leaves the range."""
    powers = [power for power in formal.atoms(sp.Pow) if power.exp.free_symbols]
    whole = {part: sp.Dummy() for part in (*formal.atoms(sp.Function), *powers)}
    expanded = sp.expand(sp.cancel(formal.xreplace(whole)))
    return expanded.xreplace({dummy: part for part, dummy in whole.items()})
