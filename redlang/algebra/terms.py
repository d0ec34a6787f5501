"""Terms: the forms into which the summand of a carried stage is taken apart.

A summand becomes a sum of terms, each a product of

    factors . element . (y - u)^k ... . exp(e - u) . cos(y - u) ...

or of `where(c, such a product, 0)` with further factors and elements. *Contexts* u hold results of
earlier stages of the sweep and do not vary along it, *elements* y, e vary along it and hold no such
result. Every part is a sub-expression that the user wrote, or a sum, difference or product of some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from redlang.algebra.reading import Reading
from redlang.algebra.sharing import Pool
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Expr, Load, Ref
from redlang.ir.program import Literal as Number


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor without elements: it leaves the sum and is applied as it was written.

    `where` keeps the sum where `value` is true and makes it 0 elsewhere.
    """

    op: Literal["mul", "div", "where"]
    value: Expr


@dataclass(frozen=True, slots=True)
class Shift:
    """`(element - context) ** power`."""

    element: Expr
    context: Expr
    power: int = 1


@dataclass(frozen=True, slots=True)
class Exponential:
    """`exp(element - context)`, or `exp2`."""

    base: Literal["exp", "exp2"]
    element: Expr
    context: Expr


@dataclass(frozen=True, slots=True)
class Rotation:
    """`cos(element - context)` or `sin(element - context)`."""

    op: Literal["cos", "sin"]
    element: Expr
    context: Expr


@dataclass(frozen=True, slots=True)
class Term:
    """A product; see the module's text.

    Attributes:
        number: A whole number in front.
        factors: What leaves the sum, in the order written.
        element: The product of the factors that hold elements or constants; None for 1.
        parts: The factors of `element` as the text multiplies them, one after another.
        shifts, exponential, rotations: The factors in which elements and contexts mix.
        selects: Conditions on elements; where one is false another term stands in its place.
        chosen: Conditions on elements; where one is false the product so far is 0, and what is
            outside is multiplied by that: a NaN there shows.
        inside: How many of the factors, the first ones, stand inside that choice.
        outer: The product of the elements outside of it; None for 1.
    """

    number: int = 1
    factors: tuple[Factor, ...] = ()
    element: Expr | None = None
    shifts: tuple[Shift, ...] = ()
    exponential: Exponential | None = None
    rotations: tuple[Rotation, ...] = ()
    selects: tuple[Expr, ...] = ()
    chosen: tuple[Expr, ...] = ()
    inside: int = 0
    outer: Expr | None = None
    parts: tuple[Expr, ...] = ()

    @property
    def mixed(self) -> bool:
        """Return whether an element and a context meet in one factor."""
        return bool(self.shifts or self.exponential or self.rotations)

    @property
    def product(self) -> bool:
        """Return whether the term is factors times an element, nothing else."""
        return not (self.mixed or self.selects or self.chosen)


Terms = tuple[Term, ...]


class View:
    """How the stages of one sweep see expressions.

    Attributes:
        axes: The swept axes.
        carried: Names of the results that are carried with the stage at hand.
        build: Typed constructors.
        pool: Where expressions are interned.
        reading: How expressions are shown.
    """

    def __init__(
        self,
        axes: Iterable[str],
        carried: Iterable[str],
        build: Builder,
        pool: Pool,
        reading: Reading,
    ) -> None:
        self.axes = frozenset(axes)
        self.carried = frozenset(carried)
        self.build = build
        self.pool = pool
        self.reading = reading
        self._reads: dict[int, tuple[Expr, bool]] = {}

    def text(self, expr: Expr) -> str:
        """Return `expr` as a reader wants it."""
        return self.reading.text(self.pool.intern(expr))

    def varies(self, expr: Expr) -> bool:
        """Return whether `expr` varies along the swept axes."""
        return not self.axes.isdisjoint(expr.type.axes)

    def reads(self, expr: Expr) -> bool:
        """Return whether `expr` reads a carried result."""
        for node in walk.nodes(expr):
            if id(node) not in self._reads:
                own = isinstance(node, Ref) and node.name in self.carried
                reads = own or any(self._reads[id(child)][1] for child in walk.children(node))
                self._reads[id(node)] = (node, reads)
        return self._reads[id(expr)][1]

    def context(self, expr: Expr) -> bool:
        """Return whether `expr` is a context: it reads a carried result and does not vary."""
        return self.reads(expr) and not self.varies(expr)

    def fixed(self, expr: Expr) -> bool:
        """Return whether `expr` reads no carried result."""
        return not self.reads(expr)


class Steady(View):
    """Sees what does not vary along the sweep as contexts, whether it is carried or not."""

    def __init__(self, view: View) -> None:
        super().__init__(view.axes, view.carried, view.build, view.pool, view.reading)

    def reads(self, expr: Expr) -> bool:
        """Return whether a part of `expr` does not vary along the swept axes."""
        for node in walk.nodes(expr):
            if id(node) not in self._reads:
                parts = () if isinstance(node, Load) else walk.children(node)
                own = not self.varies(node)
                reads = own or any(self._reads[id(part)][1] for part in parts)
                self._reads[id(node)] = (node, reads)
        return self._reads[id(expr)][1]


def negated(term: Term) -> Term:
    """Return minus the term."""
    return replace(term, number=-term.number)


def with_select(term: Term, condition: Expr) -> Term:
    """Return the term where `condition` holds, 0 elsewhere."""
    if condition in term.selects:
        return term
    return replace(term, selects=(*term.selects, condition))


def with_choice(term: Term, condition: Expr, build: Builder) -> Term:
    """Return `where(condition, term, 0)`."""
    if term.product and term.element is not None and not term.factors:
        return replace(term, element=build.where(condition, term.element, 0.0), parts=())
    outer = term.outer and build.where(condition, term.outer, 0.0)
    chosen = term.chosen if condition in term.chosen else (*term.chosen, condition)
    return replace(term, chosen=chosen, inside=len(term.factors), outer=outer)


def opposite(condition: Expr, build: Builder) -> Expr:
    """Return the negation of a condition."""
    if isinstance(condition, Apply) and condition.op == "not":
        return condition.arguments[0]
    return build.apply("not", condition)


def disjoint(a: Term, b: Term) -> bool:
    """Return whether the conditions of two terms exclude each other."""
    opposites = {c.arguments[0] for c in a.selects if isinstance(c, Apply) and c.op == "not"}
    if not opposites.isdisjoint(b.selects):
        return True
    opposites = {c.arguments[0] for c in b.selects if isinstance(c, Apply) and c.op == "not"}
    return not opposites.isdisjoint(a.selects)


def multiply(a: Term, b: Term, build: Builder) -> Term | None:
    """Return the product of two terms, or None where it leaves the form.

    Two exponentials meet in one when their bases agree. What is chosen meets what is chosen alike,
    or elements, which stay outside.
    """
    selects = (*a.selects, *(c for c in b.selects if c not in a.selects))
    if set(a.chosen) != set(b.chosen):
        inner, outside = (a, b) if a.chosen else (b, a)
        if outside.chosen or outside.mixed:
            return None
        return replace(
            inner,
            number=a.number * b.number,
            factors=(*inner.factors, *outside.factors),
            selects=selects,
            outer=_product(inner.outer, outside.element, build),
        )
    exponential = a.exponential or b.exponential
    if a.exponential and b.exponential:
        if a.exponential.base != b.exponential.base:
            return None
        exponential = Exponential(
            a.exponential.base,
            build.add(a.exponential.element, b.exponential.element),
            build.add(a.exponential.context, b.exponential.context),
        )
    shifts = list(a.shifts)
    for shift in b.shifts:
        for i, other in enumerate(shifts):
            if other.element == shift.element and other.context == shift.context:
                shifts[i] = replace(other, power=other.power + shift.power)
                break
        else:
            shifts.append(shift)
    inside = (*a.factors[: a.inside], *b.factors[: b.inside])
    return Term(
        a.number * b.number,
        (*inside, *a.factors[a.inside :], *b.factors[b.inside :]),
        _product(a.element, b.element, build),
        tuple(shifts),
        exponential,
        (*a.rotations, *b.rotations),
        selects,
        a.chosen,
        len(inside),
        _product(a.outer, b.outer, build),
        (*_parts(a), *_parts(b)),
    )


def _parts(term: Term) -> tuple[Expr, ...]:
    """Return the factors of the element, as far as they are known."""
    whole = () if term.element is None else (term.element,)
    return term.parts or whole


def _product(a: Expr | None, b: Expr | None, build: Builder) -> Expr | None:
    """Return a * b, None for 1."""
    return build.mul(a, b) if a is not None and b is not None else a or b


def factors_of(expr: Expr | None) -> tuple[Expr, ...]:
    """Return the factors of a product, in order; none for None."""
    return () if expr is None else walk.factors(expr)


def without(factors: Sequence[Expr], taken: Sequence[Expr]) -> list[Expr] | None:
    """Return the factors that remain when those of `taken` are taken away, None if some lack.

    Both are interned, so that the same factor is the same object.
    """
    rest = list(factors)
    for factor in taken:
        place = next((i for i, other in enumerate(rest) if other is factor), None)
        if place is None:
            return None
        del rest[place]
    return rest


def is_number(expr: Expr, value: float) -> bool:
    """Return whether `expr` is the literal `value`."""
    return isinstance(expr, Number) and expr.value == value


def apply_factor(result: Expr, factor: Factor, build: Builder) -> Expr:
    """Apply what left the sum, as it was written."""
    if factor.op == "where":
        return build.where(factor.value, result, build.convert(0, result.type.dtype))
    return build.apply(factor.op, result, factor.value)
