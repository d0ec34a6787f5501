"""What a plan claims, as equations for `prove`.

Sums are linear, so an equation for one element, true for all elements and contexts, is an equation
for every sum: it is enough to prove

    F(x, u) = C(u) sum over i of T_0i(c, u) phi_i(x, c)        the result follows from the state
    phi_k(x, c') = sum over i of T_ki(c, c') phi_i(x, c)       the state moves

for all x, u, c and c'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redlang.algebra import numbers
from redlang.algebra.derive import Multiplied, Ordered, Plain, StagePlan, Transported
from redlang.algebra.numbers import SEED, Sampler, UndefinedError
from redlang.algebra.prove import Claim, Prover, outermost
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View, apply_factor
from redlang.algebra.transport import (
    CarriedTerm,
    Centre,
    Maximum,
    Phi,
    Reference,
    finish,
    move,
    value,
)
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Expr, Literal, Ref
from redlang.ir.types import Type

ORDER_SAMPLES = 24


@dataclass(frozen=True, slots=True)
class Points:
    """Names for reference points in formulas: c, c2, ... now and c', c2', ... later."""

    names: dict[Reference, str]

    def now(self, reference: Reference) -> Expr:
        """Return the reference point that the sums stand at."""
        return Ref(self.names[_point(reference)], Type(reference.dtype))

    def later(self, reference: Reference) -> Expr:
        """Return the reference point that they move to."""
        return Ref(self.names[_point(reference)] + "'", Type(reference.dtype))


def _point(reference: Reference) -> Reference:
    """Return the reference point at which a shift stands that has none of its own."""
    if isinstance(reference, Centre) and reference.top is not None:
        return reference.top
    return reference


def points_of(plan: Transported) -> Points:
    """Return names for the reference points of a plan."""
    names: dict[Reference, str] = {}
    for carried in plan.terms:
        for reference in references(carried):
            names.setdefault(reference, f"c{len(names) + 1}" if names else "c")
    return Points(names)


def references(carried: CarriedTerm) -> list[Reference]:
    """Return the moving reference points of a term."""
    found: list[Reference] = [] if carried.top.maximum is None else [carried.top.maximum]
    for centre in carried.centres:
        if centre.weight is not None and centre not in found:
            found.append(centre)
        if centre.weight is not None and centre.weight.maximum not in (None, *found):
            assert centre.weight.maximum is not None
            found.append(centre.weight.maximum)
    return found


def moved(phi: Phi, points: Points, sums: Callable[[Phi], Expr], build: Builder) -> Expr:
    """Return the sum of phi at the later reference points from sums at the present ones."""

    def decay(reference: Reference) -> Expr:
        assert isinstance(reference, Maximum)
        distance = build.sub(points.now(reference), points.later(reference))
        return build.apply(reference.base, distance)

    def step(reference: Reference) -> Expr:
        return build.sub(points.now(reference), points.later(reference))

    return move(phi, decay, step, sums, build)


def finished(
    carried: CarriedTerm, points: Points, sums: Callable[[Phi], Expr], build: Builder
) -> Expr:
    """Return a term's result from sums at the present reference points."""

    def distance(reference: Reference, context: Expr) -> Expr:
        if isinstance(reference, Centre) and not reference.moves:
            return build.neg(context)
        return build.sub(points.now(reference), context)

    chosen = carried.term.chosen if carried.top.choice is None else ()
    result = finish(carried, distance, sums, build)
    for condition in (*carried.term.selects, *chosen):
        result = build.where(condition, result, build.convert(0, result.type.dtype))
    return result


def claims_of(plan: StagePlan, build: Builder) -> list[Claim]:
    """Return the equations that a plan rests on."""
    match plan:
        case Plain():
            return []
        case Transported():
            return _transport_claims(plan, build)
        case Ordered(operand=operand, hoisted=hoisted):
            return [Claim(operand, hoisted.psi(hoisted.element))]
        case Multiplied(stage, term, power):
            dtype = stage.operand.type.dtype
            result = term.element if term.element is not None else build.convert(1, dtype)
            for factor in term.factors:
                result = apply_factor(result, factor, build)
            if term.number < 0:
                result = build.neg(result)
            if power is not None:
                result = build.apply("pow", result, power)
            return [Claim(stage.operand, result)]
        case _:
            raise AssertionError(f"a plan without claims: {plan}")


def _transport_claims(plan: Transported, build: Builder) -> list[Claim]:
    points = points_of(plan)

    def now(phi: Phi) -> Expr:
        return value(phi, points.now, build)

    total: Expr = build.convert(0, plan.stage.operand.type.dtype)
    for i, carried in enumerate(plan.terms):
        part = finished(carried, points, now, build)
        total = build.add(total, part) if i else part
    claims = [Claim(plan.stage.operand, total)]
    moving = (
        phi
        for phi in bases(plan)
        if phi.maximum is not None or any(centre.moves for centre, _ in phi.centres)
    )
    claims.extend(
        Claim(value(phi, points.later, build), moved(phi, points, now, build)) for phi in moving
    )
    return claims


def bases(plan: Transported) -> list[Phi]:
    """Return every phi of a plan, once."""
    return list(dict.fromkeys(phi for carried in plan.terms for phi in carried.basis()))


def prover_for(plan: StagePlan, view: View, signs: Signs) -> Prover:
    """Return a prover whose units are the parts in which elements and contexts do not mix."""

    def is_unit(node: Expr) -> bool:
        mixes = view.varies(node) and view.reads(node)
        return not mixes and id(node) in inside

    inside = set(_maximal(plan.stage.operands, view))
    return Prover(view.pool, signs, is_unit)


def _maximal(exprs: tuple[Expr, ...], view: View) -> list[int]:
    """Return the ids of the largest parts that do not mix elements and contexts."""
    found, stack = [], [view.pool.intern(expr) for expr in exprs]
    while stack:
        node = stack.pop()
        if view.varies(node) and view.reads(node):
            stack.extend(walk.children(node))
        elif not isinstance(node, Literal):
            found.append(id(node))
    return found


def moves_in_order(plan: Ordered, view: View, signs: Signs) -> str | None:
    """Return numbers for which psi does not move as the plan says; None if it always did."""
    hoisted = plan.hoisted
    free = view.pool.intern(Ref("g", Type(hoisted.element.type.dtype)))
    psi = view.pool.intern(hoisted.psi(free))
    prover = prover_for(plan, view, signs)
    others = [n for n in outermost([psi], prover.is_unit) if n is not free]
    sampler = Sampler(SEED)
    sign = signs.of(hoisted.element)
    for _ in range(ORDER_SAMPLES):
        values = {id(n): sampler.draw(n, signs.of(n)) for n in others}
        low, high = sorted((sampler.draw(free, sign), sampler.draw(free, sign)))
        try:
            first = numbers.evaluate(psi, {**values, id(free): low})
            second = numbers.evaluate(psi, {**values, id(free): high})
        except UndefinedError:
            continue
        if (first > second) if hoisted.rising else (first < second):
            return f"g = {numbers.text(low)} and {numbers.text(high)}"
    return None
