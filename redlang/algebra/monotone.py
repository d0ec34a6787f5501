"""Maxima, minima and ranks of what is monotone in the element.

    max over l of psi(G(x_l), D) = psi(max over l of G(x_l), D)

holds where psi rises in its first place for all admitted D; where it falls, max becomes min.
`hoist` finds G and psi from the operators' laws and from known signs. Nothing is assumed: a factor
whose sign is not known is not pulled through a maximum. Ranks (argmax, argmin, topk) need strict
monotony, since equal values compare by position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from redlang.algebra.operators import LAWS, NONNEGATIVE, NONPOSITIVE, Sign
from redlang.algebra.separate import NotSeparable, Separation
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.ir import walk
from redlang.ir.monotony import WRAPPING, is_small
from redlang.ir.program import Apply, Cast, Expr, Literal


class NotMonotone(Exception):  # noqa: N818 (an outcome, not an error that a user sees)
    """No law shows that a node is monotone in one element."""

    def __init__(self, reason: str, node: Expr) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


@dataclass(frozen=True, slots=True)
class Hoisted:
    """`expr = psi(element)`, psi free of elements.

    Attributes:
        element: G.
        psi: Puts the expression together again around a value for G.
        rising: Whether psi rises, else it falls.
        strict: Whether it is strictly monotone.
        facts: Signs that this rests on.
        absorbing: Whether psi can make an infinite value finite, and so hide that an infinite
            element met an infinite context.
        scales: What psi multiplies by; where one is infinite, an element of 0 makes NaN.
    """

    element: Expr
    psi: Callable[[Expr], Expr]
    rising: bool = True
    strict: bool = True
    facts: tuple[str, ...] = ()
    absorbing: bool = False
    scales: tuple[Expr, ...] = ()


def hoist(expr: Expr, view: View, signs: Signs) -> Hoisted:
    """Return `expr` as a monotone function of one element.

    Raises:
        NotMonotone: No law applies, or a sign is not known.
    """
    hoisted = _Hoist(view, signs).of(view.pool.intern(expr))
    while isinstance(hoisted.element, Apply) and hoisted.element.op == "neg":
        hoisted = _without_minus(hoisted, hoisted.element.arguments[0], view)
    return hoisted


def _without_minus(hoisted: Hoisted, element: Expr, view: View) -> Hoisted:
    """Return psi(-G) as a function of G: the maximum of -x is the minimum of x."""

    def psi(g: Expr) -> Expr:
        return hoisted.psi(view.build.neg(g))

    return replace(hoisted, element=element, psi=psi, rising=not hoisted.rising)


_BOUNDED = frozenset({"exp", "exp2", "rsqrt", "tanh", "sigmoid", "erf", "sign"})
"""Functions with finite values at infinity."""

_VANISHING = frozenset({"exp", "exp2", "rsqrt", "sigmoid", "div"})
"""Functions of positive value that floats round to 0 far away."""


class _Hoist:
    def __init__(self, view: View, signs: Signs) -> None:
        self.view = view
        self.build = view.build
        self.signs = signs
        self.separation = Separation(view, signs)

    def of(self, expr: Expr) -> Hoisted:
        if self.view.fixed(expr):
            return Hoisted(expr, lambda g: g)
        whole = expr.type.dtype.kind in ("int", "uint")
        if whole and isinstance(expr, Apply) and expr.op in WRAPPING and not is_small(expr):
            raise NotMonotone("integers wrap, which keeps no order", expr)
        for attempt in (self._sum, self._product):
            hoisted = attempt(expr)
            if hoisted is not None:
                return hoisted
        match expr:
            case Apply("add" | "sub" | "mul" | "div" as op, (left, right)):
                return self._binary(op, left, right, expr)
            case Apply("neg", (operand,)):
                return self._after("neg", self.of(operand), rising=False)
            case Apply("abs", (operand,)):
                return self._even("abs", operand, (), expr)
            case Apply("pow", (operand, Literal(k) as exponent)) if k in (2, 4, 6, 8):
                return self._even("pow", operand, (exponent,), expr)
            case Apply("pow", (operand, Literal(k) as exponent)) if k in (1, 3, 5, 7):
                return self._after("pow", self.of(operand), exponent)
            case Apply("maximum" | "minimum" as op, (left, right)):
                operand, other = (right, left) if self._steady(left) else (left, right)
                self._require_steady(other, expr)
                outer = self._after(op, self.of(operand), other)
                return replace(outer, strict=False, absorbing=True)
            case Apply("clip", (operand, low, high)):
                self._require_steady(low, expr)
                self._require_steady(high, expr)
                outer = self._after("clip", self.of(operand), low, high)
                return replace(outer, strict=False, absorbing=True)
            case Apply("where", (condition, then, otherwise)) if self._steady(condition):
                return self._choice(condition, self.of(then), self.of(otherwise), expr)
            case Apply(op, (operand,)) if LAWS[op].order:
                return self._unary(op, operand, expr)
            case Cast(operand):
                return self._cast(expr, operand)
            case _:
                raise NotMonotone(
                    f"no law says how {self._name(expr)} moves with the element", expr
                )

    def _sum(self, expr: Expr) -> Hoisted | None:
        """Return G + u for a sum of elements and contexts."""
        if not (isinstance(expr, Apply) and expr.op in ("add", "sub", "neg")):
            return None
        try:
            element, context = self.separation.linear(expr)
        except NotSeparable:
            return None
        if element is None or context is None or not self.view.varies(element):
            return None
        if isinstance(context, Apply) and context.op == "neg":
            return Hoisted(element, lambda g: self.build.add(g, context.arguments[0]))
        return Hoisted(element, lambda g: self.build.sub(g, context))

    def _product(self, expr: Expr) -> Hoisted | None:
        """Return C * G for a product of elements and contexts."""
        try:
            terms = self.separation.terms(expr)
        except NotSeparable:
            return None
        if len(terms) != 1 or not terms[0].product or terms[0].element is None:
            return None
        (term,) = terms
        assert term.element is not None
        if abs(term.number) != 1 or any(factor.op == "where" for factor in term.factors):
            return None
        rising, strict = term.number > 0, True
        for factor in term.factors:
            positive, sure = self._scale(factor.op, factor.value, expr)
            rising, strict = rising is positive, strict and sure
        facts = tuple(self._fact(factor.value) for factor in term.factors)

        def psi(g: Expr) -> Expr:
            result = self.build.neg(g) if term.number < 0 else g
            for factor in term.factors:
                result = self.build.apply(factor.op, result, factor.value)
            return result

        absorbing = not strict or any(f.op == "div" or _may_vanish(f.value) for f in term.factors)
        scales = tuple(factor.value for factor in term.factors if factor.op == "mul")
        return Hoisted(term.element, psi, rising, strict, facts, absorbing, scales)

    def _binary(self, op: str, left: Expr, right: Expr, expr: Expr) -> Hoisted:
        if self._steady(right):
            inner = self.of(left)
            if op in ("add", "sub"):
                return self._after(op, inner, right)
            rising, strict = self._scale(op, right, expr)
            outer = self._after(op, inner, right, rising=rising)
            return self._scaled(outer, op, right, strict=strict)
        if not self._steady(left):
            raise NotMonotone("two elements meet with a context between them", expr)
        inner = self.of(right)
        if op == "add":
            return self._before(op, left, inner)
        if op == "sub":
            return self._before(op, left, inner, rising=False)
        rising, strict = self._scale(op, left, expr)
        if op == "div":
            self._scale("div", right, expr)
            rising = not rising
        return self._scaled(self._before(op, left, inner, rising=rising), op, left, strict=strict)

    def _scaled(self, outer: Hoisted, op: str, by: Expr, *, strict: bool) -> Hoisted:
        return replace(
            outer,
            strict=outer.strict and strict,
            facts=(*outer.facts, self._fact(by)),
            absorbing=outer.absorbing or op == "div" or not strict or _may_vanish(by),
            scales=(*outer.scales, by) if op == "mul" else outer.scales,
        )

    def _choice(self, condition: Expr, yes: Hoisted, no: Hoisted, expr: Expr) -> Hoisted:
        """Return where(u, f(G), g(G)), both of which move the same way."""
        if yes.element is not no.element or yes.rising is not no.rising:
            raise NotMonotone("the two branches do not move alike with one element", expr)
        return Hoisted(
            yes.element,
            lambda g: self.build.where(condition, yes.psi(g), no.psi(g)),
            yes.rising,
            yes.strict and no.strict,
            (*yes.facts, *no.facts),
            yes.absorbing or no.absorbing,
            (*yes.scales, *no.scales),
        )

    def _unary(self, op: str, operand: Expr, expr: Expr) -> Hoisted:
        law = LAWS[op]
        facts: tuple[str, ...] = ()
        if law.domain is not Sign(7):
            if self.signs.of(operand) & ~law.domain:
                raise NotMonotone(f"{op} of an argument whose sign is not known", expr)
            facts = (self._fact(operand),)
        outer = self._after(op, self.of(operand), rising=law.order == "rising")
        return replace(
            outer,
            strict=outer.strict and law.strict,
            facts=(*outer.facts, *facts),
            absorbing=outer.absorbing or op in _BOUNDED,
        )

    def _even(self, op: str, operand: Expr, more: tuple[Expr, ...], expr: Expr) -> Hoisted:
        sign = self.signs.of(operand)
        if not sign & ~NONNEGATIVE:
            rising = True
        elif not sign & ~NONPOSITIVE:
            rising = False
        else:
            raise NotMonotone(f"{op} of an argument whose sign is not known", expr)
        outer = self._after(op, self.of(operand), *more, rising=rising)
        return replace(outer, facts=(*outer.facts, self._fact(operand)))

    def _cast(self, cast: Cast, operand: Expr) -> Hoisted:
        inner = self.of(operand)
        if cast.to.kind != "float" and cast.explicit:
            raise NotMonotone("a cast to integers saturates and drops NaN", cast)
        if cast.to.kind == "int" and operand.type.dtype.kind == "uint":
            raise NotMonotone("integers wrap, which keeps no order", cast)
        return replace(
            inner,
            psi=lambda g: replace(
                cast, operand=inner.psi(g), type=replace(cast.type, axes=inner.psi(g).type.axes)
            ),
            strict=inner.strict and not cast.explicit,
        )

    def _after(self, op: str, inner: Hoisted, *more: Expr, rising: bool = True) -> Hoisted:
        return replace(
            inner,
            psi=lambda g: self.build.apply(op, inner.psi(g), *more),
            rising=inner.rising is rising,
        )

    def _before(self, op: str, left: Expr, inner: Hoisted, *, rising: bool = True) -> Hoisted:
        return replace(
            inner,
            psi=lambda g: self.build.apply(op, left, inner.psi(g)),
            rising=inner.rising is rising,
        )

    def _steady(self, expr: Expr) -> bool:
        return not self.view.varies(expr)

    def _require_steady(self, expr: Expr, whole: Expr) -> None:
        if not self._steady(expr):
            raise NotMonotone("two elements meet with a context between them", whole)

    def _scale(self, op: str, expr: Expr, whole: Expr) -> tuple[bool, bool]:
        """Return whether a factor is positive, else negative, and whether it is never 0.

        A divisor that may be 0 makes NaN of 0 among the elements, wherever it stands, so that
        nothing can be said of the others.
        """
        sign = self.signs.of(expr)
        never = not sign & Sign.ZERO
        if (sign & ~NONNEGATIVE and sign & ~NONPOSITIVE) or (op == "div" and not never):
            raise NotMonotone(f"the sign of {self.view.text(expr)} is not known", whole)
        return not sign & ~NONNEGATIVE, never

    def _fact(self, expr: Expr) -> str:
        sign = self.signs.of(expr)
        relation = {Sign.POSITIVE: "> 0", Sign.NEGATIVE: "< 0", NONNEGATIVE: ">= 0"}
        return f"{self.view.text(expr)} {relation.get(sign, '<= 0')}"

    def _name(self, expr: Expr) -> str:
        return expr.op if isinstance(expr, Apply) else self.view.text(expr)


def _may_vanish(factor: Expr) -> bool:
    """Tell whether a factor that is never 0 may be so small that its float is."""
    return any(isinstance(node, Apply) and node.op in _VANISHING for node in walk.nodes(factor))
