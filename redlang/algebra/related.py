"""Sums that are kept about a centre because a later stage subtracts a mean that they make.

A centre serves the shifts that it was chosen for. The mean that such a shift subtracts may be taken
under another condition or weight than the shift itself; then its sum gets a centre of its own, so
that the distance between the two is a difference of centres and small rests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redlang.algebra.derive import Plain, StagePlan, Transported
from redlang.algebra.operators import Sign
from redlang.algebra.sharing import canonical
from redlang.algebra.signs import Signs
from redlang.algebra.terms import Shift, View, factors_of, without
from redlang.algebra.transport import Centre, Phi, own_weight
from redlang.ir import walk
from redlang.ir.program import Expr


def related_centres(plans: Sequence[StagePlan], view: View, signs: Signs) -> list[Centre]:
    """Return centres for the sums whose means are subtracted by shifts of the same elements."""
    sums = {plan.stage.name: phi for plan in plans for phi in _sums(plan, view)}
    found: dict[Centre, None] = {}
    for plan in plans:
        if not isinstance(plan, Transported):
            continue
        for carried in plan.terms:
            exponential = carried.term.exponential
            shifts = list(carried.term.shifts)
            if exponential is not None:
                shifts.append(Shift(exponential.element, exponential.context))
            for shift in shifts:
                if signs.of(shift.context) is Sign.ZERO:
                    continue
                for name in walk.refs(shift.context) & sums.keys():
                    centre = _centre(shift, sums[name], view, signs)
                    if centre is not None:
                        found[centre] = None
    return list(found)


def _sums(plan: StagePlan, view: View) -> list[Phi]:
    """Return the phi of a stage that is a single sum without shifts."""
    match plan:
        case Plain(stage) if stage.reduce.op == "sum":
            condition = canonical([stage.condition], view.build, view.pool)
            dtype = stage.reduce.types[0].dtype
            return [Phi(view.pool.intern(stage.operand), None, (), (), condition, dtype)]
        case Transported(_, (term,)) if not term.centres and not term.top.rotations:
            return [term.top]
        case _:
            return []


def _centre(shift: Shift, phi: Phi, view: View, signs: Signs) -> Centre | None:
    if phi.dtype.kind != "float" or phi.outer is not None:
        return None
    element = view.pool.intern(view.build.convert(shift.element, phi.dtype))
    factors = without(factors_of(phi.element), factors_of(element))
    if factors is None:
        return None
    rest: Expr | None = None
    for factor in factors:
        rest = factor if rest is None else view.build.mul(rest, factor)
    own = rest and view.pool.intern(rest)
    weight = replace(phi, element=own, centres=(), rotations=(), choice=None, outer=None)
    signed = weight.element is not None and not signs.nonnegative(weight.element)
    if signed or not own_weight(shift, weight, view):
        return None
    return Centre(element, weight, phi.dtype)
