"""Take the summand of a carried stage apart into terms.

The laws used are those of real arithmetic on whole sub-expressions: sums stay sums, products
distribute, `exp` of a sum is a product, even powers are products, `abs` of a product is the product
of the `abs`. Nothing is simplified and no operand is reordered beyond that: the parts are what the
user wrote. What fits no law raises `NotSeparable` with the node that is to blame.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.algebra.operators import LAWS, NONNEGATIVE, Sign
from redlang.algebra.signs import Signs
from redlang.algebra.terms import (
    Exponential,
    Factor,
    Rotation,
    Shift,
    Term,
    Terms,
    View,
    disjoint,
    is_number,
    multiply,
    negated,
    opposite,
    with_choice,
    with_select,
)
from redlang.ir.printing import to_text
from redlang.ir.program import Apply, Cast, Expr, Literal

MAX_TERMS = 16
MAX_POWER = 8

Linear = tuple[Expr | None, Expr | None]
"""Element e and context u of a sum, which is e - u; None where there is none."""


class NotSeparable(Exception):  # noqa: N818 (an outcome, not an error that a user sees)
    """A node mixes elements and contexts in a way that no law takes apart."""

    def __init__(self, reason: str, node: Expr) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


class Separation:
    """Takes expressions apart, as the stages of one sweep see them.

    Attributes:
        spread: Whether a product of two mixed sums was multiplied out. That is exact, but not
            stable: see the third gate.
    """

    def __init__(self, view: View, signs: Signs) -> None:
        self.view = view
        self.build = view.build
        self.pool = view.pool
        self.signs = signs
        self.spread = False
        self._done: dict[int, Terms] = {}

    def terms(self, expr: Expr) -> Terms:
        """Return the terms whose sum is `expr`.

        Raises:
            NotSeparable: No law applies.
        """
        expr = self.pool.intern(expr)
        if id(expr) not in self._done:
            terms = tuple(term for term in self._terms(expr) if term.number)
            if len(terms) > MAX_TERMS:
                raise NotSeparable(f"more than {MAX_TERMS} terms", expr)
            self._done[id(expr)] = terms
        return self._done[id(expr)]

    def linear(self, expr: Expr) -> Linear:
        """Return e and u of a sum e - u.

        Raises:
            NotSeparable: `expr` is not a sum of an element and a context.
        """
        view, build = self.view, self.build
        if view.fixed(expr):
            return expr, None
        if not view.varies(expr):
            return None, self._opposite(expr)
        match expr:
            case Apply("add", (left, right)):
                a, b = self.linear(left), self.linear(right)
                return self._plus(a[0], b[0]), self._plus(a[1], b[1])
            case Apply("sub", (left, right)):
                a, b = self.linear(left), self.linear(right)
                return self._minus(a[0], b[0]), self._minus(a[1], b[1])
            case Apply("neg", (operand,)):
                e, u = self.linear(operand)
                return (e and build.neg(e)), (u and self._opposite(u))
            case Apply("mul", (left, right)) if self._scale(left):
                e, u = self.linear(right)
                return (e and build.mul(left, e)), (u and build.mul(left, u))
            case Apply("mul" | "div" as op, (left, right)) if self._scale(right):
                e, u = self.linear(left)
                return (e and build.apply(op, e, right)), (u and build.apply(op, u, right))
            case Cast(operand, _, _, False) if _widens(expr):
                e, u = self.linear(operand)
                to = expr.type.dtype
                return (e and build.convert(e, to)), (u and build.convert(u, to))
            case _:
                raise NotSeparable("not a sum of an element and a context", expr)

    def _plus(self, a: Expr | None, b: Expr | None) -> Expr | None:
        return self.build.add(a, b) if a and b else a or b

    def _minus(self, a: Expr | None, b: Expr | None) -> Expr | None:
        return self.build.sub(a, b) if a and b else a or (b and self._opposite(b))

    def _scale(self, expr: Expr) -> bool:
        """Return whether a sum may be multiplied by `expr` part by part: it is constant."""
        return self.view.fixed(expr) and not self.view.varies(expr)

    def _terms(self, expr: Expr) -> Terms:
        view = self.view
        if view.fixed(expr):
            return () if is_number(expr, 0) else (Term(element=expr),)
        if not view.varies(expr):
            return (Term(factors=(Factor("mul", expr),)),)
        match expr:
            case Apply("add", (left, right)):
                return self._sum(left, right, 1)
            case Apply("sub", (left, right)):
                return self._sum(left, right, -1)
            case Apply("neg", (operand,)):
                return tuple(map(negated, self.terms(operand)))
            case Apply("mul", (left, right)):
                return self._product(self.terms(left), self.terms(right), expr)
            case Apply("div", (left, right)):
                return self._quotient(left, right, expr)
            case Apply("pow", (operand, Literal(exponent))):
                return self._power(operand, exponent, expr)
            case Apply("exp" | "exp2" as base, (operand,)):
                return self._exponential(base, operand)
            case Apply("cos" | "sin" as op, (operand,)):
                e, u = self._split(operand)
                return (Term(rotations=(Rotation(op, e, u),)),)
            case Apply("where", (condition, then, otherwise)):
                return self._where(condition, then, otherwise)
            case Apply("log" | "log2", (operand,)):
                return self._logarithm(expr, operand)
            case Apply(op, (operand,)) if LAWS[op].product:
                return self._multiplicative(expr, operand)
            case Apply("maximum" | "minimum" as op, (left, right)):
                return self._ramp(op, left, right, expr)
            case Cast(operand, _, _, False) if _widens(expr):
                return self.terms(operand)
            case Cast(explicit=False):
                # A float holds no difference of large integers, and never wraps.
                raise NotSeparable("integers are combined before they become floating", expr)
            case Cast():
                raise NotSeparable("a cast rounds a value that reads a carried result", expr)
            case _:
                raise NotSeparable(f"no law takes {_name(expr)} apart", expr)

    def _split(self, expr: Expr) -> tuple[Expr, Expr]:
        """Return y and u with `expr` = y - u, of which both exist."""
        e, u = self.linear(expr)
        if e is None or u is None:
            raise NotSeparable("not a sum of an element and a context", expr)
        return self.pool.intern(e), self.pool.intern(u)

    def _opposite(self, expr: Expr) -> Expr:
        """Return -expr, without a double minus where one can be seen."""
        match expr:
            case Apply("neg", (operand,)):
                return operand
            case Apply("sub", (Apply("neg", (left,)), right)):
                return self.build.add(left, right)
            case Apply("sub", (Apply("sub" | "add") as left, right)):
                return self.build.add(self._opposite(left), right)
            case Apply("add", (Apply("neg" | "sub") as left, right)):
                return self.build.sub(self._opposite(left), right)
            case Apply("sub", (left, right)):
                return self.build.sub(right, left)
            case _:
                return self.build.neg(expr)

    def _sum(self, left: Expr, right: Expr, sign: int) -> Terms:
        """Return the terms of left ± right.

        An element and a context that meet become a shift; what is a shift already takes further
        elements and contexts in; two mixed operands stay apart, as the user kept them.
        """
        a = self.terms(left)
        b = self.terms(right) if sign > 0 else tuple(map(negated, self.terms(right)))
        for one, other, first in ((a, right, True), (b, left, False)):
            if len(one) == 1 and not self._mixed(other) and (shift := self._as_shift(one[0])):
                y, u, number = shift
                # expr = number * (y - u) + s * other, with s the sign that `other` has in expr.
                s = (sign if first else 1) * number
                joined = self._join(y, u, other, s, other_first=not first)
                if joined is not None:
                    return (replace(Term(number=number), shifts=(joined,)),)
        if not self._mixed(left) and not self._mixed(right):
            return self._new_shift(left, right, sign)
        return (*a, *b)

    def _mixed(self, expr: Expr) -> bool:
        return self.view.reads(expr) and self.view.varies(expr)

    def _as_shift(self, term: Term) -> tuple[Expr, Expr, int] | None:
        """Return y, u and n where the term is n * (y - u) with n = 1 or -1."""
        plain = not (term.factors or term.element or term.exponential or term.rotations)
        if (
            plain
            and not term.selects
            and not term.chosen
            and len(term.shifts) == 1
            and abs(term.number) == 1
        ):
            (shift,) = term.shifts
            if shift.power == 1:
                return shift.element, shift.context, term.number
        return None

    def _join(self, y: Expr, u: Expr, other: Expr, sign: int, *, other_first: bool) -> Shift | None:
        """Return the shift (y - u) + sign * other."""
        build = self.build
        if self.view.reads(other):
            u = build.sub(u, other) if sign > 0 else build.add(u, other)
        elif sign < 0:
            y = build.sub(y, other)
        else:
            y = build.add(other, y) if other_first else build.add(y, other)
        return Shift(self.pool.intern(y), self.pool.intern(u))

    def _new_shift(self, left: Expr, right: Expr, sign: int) -> Terms:
        """Return left ± right of which one is an element and the other a context."""
        if self.view.reads(right):
            u = right if sign < 0 else self._opposite(right)
            return (Term(shifts=(Shift(left, self.pool.intern(u)),)),)
        if sign < 0:
            return (Term(number=-1, shifts=(Shift(right, left),)),)
        return (Term(shifts=(Shift(right, self.pool.intern(self._opposite(left))),)),)

    def _product(self, a: Terms, b: Terms, expr: Expr) -> Terms:
        if _overlapping(a) and _overlapping(b):
            self.spread = True
        products = []
        for one in a:
            for other in b:
                if disjoint(one, other):
                    continue
                product = multiply(one, other, self.build)
                if product is None:
                    raise NotSeparable("a product of different exponentials or choices", expr)
                if sum(shift.power for shift in product.shifts) > MAX_POWER:
                    raise NotSeparable(f"a power beyond {MAX_POWER}", expr)
                products.append(product)
        return tuple(products)

    def _quotient(self, left: Expr, right: Expr, expr: Expr) -> Terms:
        terms = self.terms(left)
        if not self._mixed(right):
            return tuple(self._divided(term, right) for term in terms)
        inverse = self._inverse(self.terms(right), expr)
        return self._product(terms, (inverse,), expr)

    def _divided(self, term: Term, by: Expr) -> Term:
        if term.chosen and self.view.varies(by):
            outer: Expr | float = 1.0 if term.outer is None else term.outer
            return replace(term, outer=self.build.div(outer, by))
        if term.chosen:
            return replace(term, factors=(*term.factors, Factor("div", by)))
        if term.element is not None and self.view.fixed(by):
            return replace(term, element=self.build.div(term.element, by), parts=())
        if self.view.varies(by):
            return replace(term, element=self.build.div(1.0, by), parts=())
        return replace(term, factors=(*term.factors, Factor("div", by)))

    def _inverse(self, terms: Terms, expr: Expr) -> Term:
        """Return 1 / (the only term), which must be a product without sums."""
        if len(terms) != 1 or _parted(terms[0]):
            raise NotSeparable("a division by a sum of an element and a context", expr)
        (term,) = terms
        if abs(term.number) != 1 or any(factor.op == "where" for factor in term.factors):
            raise NotSeparable("a division by a chosen value", expr)
        swap = {"mul": "div", "div": "mul"}
        factors = tuple(Factor(swap[f.op], f.value) for f in term.factors)  # type: ignore[arg-type]
        element = term.element and self.build.div(1.0, term.element)
        exponential = term.exponential and Exponential(
            term.exponential.base,
            self.pool.intern(self._opposite(term.exponential.element)),
            self.pool.intern(self._opposite(term.exponential.context)),
        )
        return Term(term.number, factors, element, exponential=exponential)

    def _power(self, operand: Expr, exponent: float, expr: Expr) -> Terms:
        if 1 <= exponent <= MAX_POWER and exponent == int(exponent):
            terms = self.terms(operand)
            result = terms
            for _ in range(int(exponent) - 1):
                result = self._product(result, terms, expr)
            return result
        if exponent == -1:
            return (self._inverse(self.terms(operand), expr),)
        if exponent == 0.5:
            return self._multiplicative(self.build.apply("sqrt", operand), operand)
        raise NotSeparable(f"a power {exponent}", expr)

    def _exponential(self, base: str, operand: Expr) -> Terms:
        match operand:
            case Apply("where", (condition, then, otherwise)):
                apply = self.build.apply
                return self._where(condition, apply(base, then), apply(base, otherwise))
            case _:
                e, u = self._split(operand)
                assert base in ("exp", "exp2")
                return (Term(exponential=Exponential(base, e, u)),)  # type: ignore[arg-type]

    def _where(self, condition: Expr, then: Expr, otherwise: Expr) -> Terms:
        negation = opposite(condition, self.build)
        if self._mixed(condition):
            raise NotSeparable("a condition compares an element with a context", condition)
        yes, no = self.terms(then), self.terms(otherwise)
        if self.view.reads(condition):
            chosen = [_with_factor(term, condition) for term in yes]
            return (*chosen, *(_with_factor(term, negation) for term in no))
        if not (yes and no):
            # A 0 is multiplied by what follows, as the text has it.
            shown = condition if yes else negation
            return tuple(with_choice(term, shown, self.build) for term in yes or no)
        kept = [with_select(term, condition) for term in yes]
        return (*kept, *(with_select(term, negation) for term in no))

    def _single(self, operand: Expr, expr: Expr) -> Term:
        """Return the only term of a product of factors, elements and exponentials."""
        terms = self.terms(operand)
        if len(terms) == 1 and not _parted(terms[0]):
            (term,) = terms
            if abs(term.number) == 1 and all(factor.op != "where" for factor in term.factors):
                return term
        raise NotSeparable(f"{_name(expr)} of a sum of an element and a context", expr)

    def _multiplicative(self, expr: Apply, operand: Expr) -> Terms:
        """Return f(a*b) = f(a)*f(b) for abs, sign, sqrt and rsqrt of a product."""
        _require_unwrapped(operand)
        term = self._single(operand, expr)
        law, op = LAWS[expr.op], expr.op
        parts = _values(term)
        if any(self.signs.of(part) & ~law.domain for part in parts) or (
            term.number < 0 and law.domain is not Sign(7)
        ):
            raise NotSeparable(f"{op} of a product whose signs are not known", expr)
        apply = self.build.apply
        factors = tuple(Factor(f.op, apply(op, f.value)) for f in term.factors)
        element = term.element and apply(op, term.element)
        number = -1 if op == "sign" and term.number < 0 else 1
        exponential = term.exponential
        if exponential is not None:
            scale = {"abs": 1.0, "sign": 0.0, "sqrt": 0.5, "rsqrt": -0.5}[op]
            exponential = scale and Exponential(  # type: ignore[assignment]
                exponential.base,
                self.build.mul(exponential.element, scale),
                self.build.mul(exponential.context, scale),
            )
        return (Term(number, factors, element, exponential=exponential or None),)

    def _logarithm(self, expr: Apply, operand: Expr) -> Terms:
        """Return log(a * b / c * exp(e - u)) as a sum, all of a, b, c positive."""
        term = self._single(operand, expr)
        parts = _values(term)
        if term.number < 0 or not all(map(self.signs.positive, parts)):
            raise NotSeparable(f"{expr.op} of a product whose signs are not known", expr)
        apply = self.build.apply
        total: Expr | None = None
        if term.exponential is not None:
            total = self.build.sub(term.exponential.element, term.exponential.context)
            natural = {"log": "exp", "log2": "exp2"}[expr.op] == term.exponential.base
            if not natural:
                raise NotSeparable("a logarithm to another base than the exponential's", expr)
        if term.element is not None:
            total = self._plus(total, apply(expr.op, term.element))
        for factor in term.factors:
            part = apply(expr.op, factor.value)
            total = self._plus(total, part) if factor.op == "mul" else self._minus(total, part)
        assert total is not None
        return self.terms(total)

    def _ramp(self, op: str, left: Expr, right: Expr, expr: Expr) -> Terms:
        """Return max(a*c, 0) = c * max(a, 0) for factors c that are not negative."""
        _require_unwrapped(expr)
        operand = left if is_number(right, 0) else right
        if not (is_number(left, 0) or is_number(right, 0)):
            raise NotSeparable(f"no law takes {_name(expr)} apart", expr)
        term = self._single(operand, expr)
        known = all(not self.signs.of(f.value) & ~NONNEGATIVE for f in term.factors)
        if not known or term.element is None:
            raise NotSeparable(f"{op} of a product whose signs are not known", expr)
        element = self.build.apply(op, self.build.mul(term.number, term.element), 0.0)
        if term.number == 1:
            element = self.build.apply(op, term.element, 0.0)
        return (replace(term, number=1, element=element, parts=()),)


def _values(term: Term) -> list[Expr]:
    """Return the factors of a product, those with elements last."""
    values = [factor.value for factor in term.factors]
    return values if term.element is None else [*values, term.element]


def _parted(term: Term) -> bool:
    """Return whether a term is more than factors, elements and an exponential."""
    return bool(term.shifts or term.rotations or term.selects or term.chosen)


def _with_factor(term: Term, condition: Expr) -> Term:
    return replace(term, factors=(*term.factors, Factor("where", condition)))


def _overlapping(terms: Terms) -> bool:
    """Return whether two of the terms are added somewhere, and an element meets a context."""
    return any(not disjoint(a, b) for i, a in enumerate(terms) for b in terms[i + 1 :]) and any(
        term.mixed or term.factors for term in terms
    )


def _widens(cast: Cast) -> bool:
    """Return whether an implicit cast keeps the value of a float."""
    source, target = cast.operand.type.dtype, cast.type.dtype
    return source.kind == target.kind == "float" and target.bits >= source.bits


def _require_unwrapped(expr: Expr) -> None:
    if expr.type.dtype.kind != "float":
        raise NotSeparable("integers wrap, which keeps neither signs nor order", expr)


def _name(expr: Expr) -> str:
    return expr.op if isinstance(expr, Apply) else to_text(expr)
