"""Derive how one stage is carried with the results that it reads, or why it cannot be.

The outcome is a *plan* for the emitter. What a plan claims is proved in `prove`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from redlang.algebra.monotone import Hoisted, NotMonotone, hoist
from redlang.algebra.operators import SWAPPED, Sign
from redlang.algebra.separate import NotSeparable, Separation
from redlang.algebra.sharing import canonical, conjuncts
from redlang.algebra.signs import Signs
from redlang.algebra.terms import Factor, Shift, Term, View, factors_of
from redlang.algebra.transport import (
    CarriedTerm,
    Phi,
    carry,
    own_weight,
)
from redlang.algebra.witness import CAP
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Expr, Literal, Reduce, Ref

MAX_RANK = CAP
"""More sums than this cost more than another sweep."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A reduction as its sweep sees it: pointwise definitions that read carried results opened."""

    names: tuple[str, ...]
    reduce: Reduce
    operands: tuple[Expr, ...]
    condition: Expr | None

    @property
    def name(self) -> str:
        """Return the stage's name."""
        return self.names[0]

    @property
    def operand(self) -> Expr:
        """Return the only operand."""
        (operand,) = self.operands
        return operand


@dataclass(frozen=True, slots=True)
class Plain:
    """The stage reads nothing that is carried: partial results just combine."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class Transported:
    """A sum whose terms are kept at reference points."""

    stage: Stage
    terms: tuple[CarriedTerm, ...]
    guards: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """A maximum, minimum or rank of a monotone function, which is applied at the end.

    Attributes:
        stage: The stage.
        op: What reduces the elements.
        operand: The monotone function.
        hoisted: The same, taken apart.
        condition: Elements that take part.
        guards: Conditions on results read, without elements.
        test: For any and all: what compares the function's extreme value.
    """

    stage: Stage
    op: str
    operand: Expr
    hoisted: Hoisted
    condition: Expr | None
    guards: tuple[Expr, ...]
    test: Callable[[Expr], Expr] = lambda value: value


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A product of `(factor * element) ** power`.

    The factor leaves the product, raised to the count; the power, which makes the element positive,
    is applied at the end.
    """

    stage: Stage
    term: Term
    power: Expr | None
    condition: Expr | None
    guards: tuple[Expr, ...]


StagePlan: TypeAlias = Plain | Transported | Ordered | Multiplied


class Declined(Exception):  # noqa: N818 (an outcome, not an error that a user sees)
    """A stage cannot be carried, or it is not known how.

    Attributes:
        obligation: What would have had to hold.
        gate: `closure`, `order`, `stability` or `size`.
        subject: The expression that would have to obey it, where it is not the operand.
    """

    def __init__(self, obligation: str, gate: str, subject: Expr | None = None) -> None:
        super().__init__(obligation)
        self.obligation = obligation
        self.gate = gate
        self.subject = subject


def derive(
    stage: Stage,
    view: View,
    signs: Signs,
    sums: Mapping[str, Stage],
    maxima: Mapping[str, Stage] | None = None,
    *,
    stable: bool = True,
) -> StagePlan:
    """Return how `stage` is carried.

    Args:
        stage: What to carry.
        view: The swept axes and the results carried beside it.
        signs: Known signs.
        sums: The sums among the carried stages, by name.
        maxima: The maxima among them.
        stable: Whether the stability gate stands.

    Raises:
        Declined: It is not known to be possible.
    """
    exprs = [*stage.operands, *conjuncts(stage.condition)]
    if not any(view.reads(expr) for expr in exprs):
        return Plain(stage)
    guards: list[Expr] = []
    conditions: list[Expr] = []
    for part in conjuncts(stage.condition):
        if view.reads(part) and view.varies(part):
            raise Declined(
                f"the condition {view.text(part)} has the same elements for all values of what it "
                "reads",
                "closure",
            )
        (guards if view.reads(part) else conditions).append(part)
    condition = canonical(conditions, view.build, view.pool)
    match stage.reduce.op:
        case "sum":
            read = _Carried(sums, maxima or {})
            return _sum(stage, condition, tuple(guards), view, signs, read, stable=stable)
        case "max" | "min" | "argmax" | "argmin" | "topk":
            return _order(stage, condition, tuple(guards), view, signs)
        case "any" | "all":
            return _truth(stage, condition, tuple(guards), view, signs)
        case "prod":
            return _product(stage, condition, tuple(guards), view, signs)
        case "count":
            test = view.text(stage.operand)
            raise Declined(f"{test} is true of the same elements for all contexts", "closure")
        case op:
            raise Declined(f"a law that carries {op} over changing contexts", "closure")


@dataclass(frozen=True, slots=True)
class _Carried:
    """Stages that are carried beside one, by name."""

    sums: Mapping[str, Stage]
    maxima: Mapping[str, Stage]


def _sum(
    stage: Stage,
    condition: Expr | None,
    guards: tuple[Expr, ...],
    view: View,
    signs: Signs,
    read: _Carried,
    *,
    stable: bool,
) -> Transported:
    (operand,) = stage.operands
    dtype = stage.reduce.types[0].dtype
    separation = Separation(view, signs)
    try:
        terms = separation.terms(operand)
    except NotSeparable as declined:
        raise Declined(
            f"phi(x, u') = T(u, u') phi(x, u): {declined.reason} in {view.text(declined.node)}",
            "closure",
        ) from None

    def is_plain_mean(shift: Shift) -> bool:
        return _is_reduced(shift, walk.refs(shift.context), read.sums, condition, view)

    def is_maximum(shift: Shift) -> bool:
        return _is_reduced(shift, _chosen_name(shift.context), read.maxima, condition, view)

    carried = tuple(
        carry(term, condition, dtype, view, signs, is_plain_mean, is_maximum) for term in terms
    )
    if _rank(carried) > MAX_RANK:
        raise Declined(f"a state of at most {MAX_RANK} sums; this has {_rank(carried)}", "size")
    if stable and dtype.kind == "float":
        if separation.spread:
            raise Declined(
                f"stability: in {view.text(operand)} a product of sums is multiplied out, and its "
                "parts may cancel",
                "stability",
            )
        for term in carried:
            _check_shifts(term, view, signs, read.sums)
            _check_powers(term, view, read.maxima)
    return Transported(stage, carried, guards)


def _check_shifts(
    carried: CarriedTerm, view: View, signs: Signs, sums: Mapping[str, Stage]
) -> None:
    """Decline a shift that may lose digits when it is moved.

    Under its own weighted mean a shift is stable for any context. Where the weight has axes of its
    own, the context must be a mean of what is shifted, so that the distances stay small.
    """
    weight = Phi(carried.top.element, carried.top.maximum, (), (), None, carried.top.dtype)
    for shift in carried.term.shifts:
        near = signs.of(shift.context) is Sign.ZERO
        own = carried.top.outer is None and own_weight(shift, weight, view)
        if near or own or _is_mean(shift, view, sums):
            continue
        raise Declined(
            f"stability: {view.text(shift.element)} - {view.text(shift.context)} has a weight with "
            "axes of its own, and the context is no mean of what is shifted",
            "stability",
        )


def _check_powers(carried: CarriedTerm, view: View, maxima: Mapping[str, Stage]) -> None:
    """Decline a power of elements that were divided by a maximum, which keeps them in range.

    Without that divisor the sum of x^8 is infinite in f32 from 6.5e4 on, and 0 below 3e-6.
    """
    divisors = Counter(map(_divisor, carried.term.factors))
    for divisor, power in divisors.items():
        if divisor is not None and power > 1 and not walk.refs(divisor).isdisjoint(maxima):
            raise Declined(
                f"stability: the sum of power {power} is in range before it is divided by "
                f"{view.text(divisor)}",
                "stability",
            )


def _divisor(factor: Factor) -> Expr | None:
    """Return by what a factor divides: `/ u` or `* (1 / u)`."""
    match factor:
        case Factor("div", value) | Factor("mul", Apply("div", (_, value))):
            return value
        case _:
            return None


def _is_mean(shift: Shift, view: View, sums: Mapping[str, Stage]) -> bool:
    """Return whether the context reads a sum of what is shifted, under any weights."""
    read = [sums[name].operand for name in walk.refs(shift.context) if name in sums]
    parts = (view.pool.intern(factor) for operand in read for factor in factors_of(operand))
    return any(part is shift.element for part in parts)


def _is_reduced(
    shift: Shift,
    names: Iterable[str],
    stages: Mapping[str, Stage],
    condition: Expr | None,
    view: View,
) -> bool:
    """Return whether one of some stages reduces what is shifted, of the same elements."""
    return any(
        view.pool.intern(stage.operand) is shift.element
        and canonical([stage.condition], view.build, view.pool) is condition
        for stage in (stages[name] for name in names if name in stages)
    )


def _chosen_name(context: Expr) -> tuple[str, ...]:
    """Return the name that a context is, or is wherever it is no number."""
    match context:
        case Apply("where", (_, then, otherwise)):
            chosen = [part for part in (then, otherwise) if not isinstance(part, Literal)]
            return _chosen_name(chosen[0]) if len(chosen) == 1 else ()
        case Ref(name):
            return (name,)
        case _:
            return ()


def _order(
    stage: Stage, condition: Expr | None, guards: tuple[Expr, ...], view: View, signs: Signs
) -> Ordered:
    operand, op = stage.operand, stage.reduce.op
    hoisted = _hoisted(operand, view, signs)
    ranks = op not in ("max", "min")
    if ranks and not hoisted.strict:
        raise Declined(f"{view.text(operand)} is strictly monotone in one element", "order")
    if not hoisted.rising:
        if op == "topk":
            raise Declined(f"{view.text(operand)} rises in its element", "order")
        op = SWAPPED[op]
    return Ordered(stage, op, operand, hoisted, condition, guards)


def _hoisted(operand: Expr, view: View, signs: Signs) -> Hoisted:
    try:
        return hoist(operand, view, signs)
    except NotMonotone as declined:
        wanted = f"{view.text(operand)} is monotone in one element, whatever it reads"
        raise Declined(f"{wanted}: {declined.reason}", "order", operand) from None


def _truth(
    stage: Stage, condition: Expr | None, guards: tuple[Expr, ...], view: View, signs: Signs
) -> Ordered:
    """Return any(f(x) > u) as max f(x) > u, and its kin.

    A NaN compares false. It must not hide another element from any, and must make all false, which
    a maximum or minimum that propagates NaN does by itself.
    """
    build, some = view.build, stage.reduce.op == "any"
    match stage.operand:
        case Apply("gt" | "ge" | "lt" | "le" as op, (left, right)) if not view.varies(right):
            operand, upper = left, op in ("gt", "ge")
            test = partial(_compared, build, op, right, swapped=False)
        case Apply("gt" | "ge" | "lt" | "le" as op, (left, right)) if not view.varies(left):
            operand, upper = right, op in ("lt", "le")
            test = partial(_compared, build, op, left, swapped=True)
        case _:
            raise Declined(
                f"{view.text(stage.operand)} compares an element with a context", "order"
            )
    hoisted = _hoisted(operand, view, signs)
    largest = (upper is some) is hoisted.rising
    if some and hoisted.element.type.dtype.kind == "float":
        number = build.apply("not", build.apply("isnan", hoisted.element))
        condition = canonical([condition, number], build, view.pool)
    return Ordered(stage, "max" if largest else "min", operand, hoisted, condition, guards, test)


def _compared(build: Builder, op: str, other: Expr, value: Expr, *, swapped: bool) -> Expr:
    return build.apply(op, other, value) if swapped else build.apply(op, value, other)


def _product(
    stage: Stage, condition: Expr | None, guards: tuple[Expr, ...], view: View, signs: Signs
) -> Multiplied:
    operand, power = stage.operand, None
    if stage.reduce.types[0].dtype.kind != "float":
        raise Declined("a product of floating numbers, which may be scaled", "closure")
    match operand:
        case Apply("pow", (base, exponent)) if view.fixed(base) and not view.varies(exponent):
            if signs.positive(base):
                operand, power = base, exponent
        case _:
            pass
    try:
        terms = Separation(view, signs).terms(operand)
    except NotSeparable as declined:
        raise Declined(f"a product of factors and elements: {declined.reason}", "closure") from None
    plain = len(terms) == 1 and terms[0].product and abs(terms[0].number) == 1
    if not plain or any(factor.op == "where" for factor in terms[0].factors):
        raise Declined("the operand is a product of factors and elements", "closure")
    return Multiplied(stage, terms[0], power, condition, guards)


def _rank(carried: tuple[CarriedTerm, ...]) -> int:
    """Return the number of different sums that the terms need."""
    return len({phi for term in carried for phi in term.basis()})
