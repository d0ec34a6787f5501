"""Factors that left a reduction and are not finite.

    sum over l of x_l * u = u * sum over l of x_l

holds for all finite u. Where u is infinite the left side is NaN as soon as one x_l is 0 or two have
different signs, and the right side is infinite. What reads the result may turn an infinite number
into a finite one, as tanh does, and so a NaN of the kernel's own text would be lost. The terms are
gone by then; NaN is the answer that loses nothing. It is given by way of the factor, once for all
elements that share it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from redlang.algebra.distance import Distances
from redlang.algebra.operators import Sign
from redlang.algebra.signs import Signs
from redlang.algebra.terms import Factor
from redlang.algebra.transport import CarriedTerm, Distance, Maximum, Reference
from redlang.ir.build import Builder, literal
from redlang.ir.program import Apply, Cast, Expr, Literal, Size

_BOUNDED = frozenset({"tanh", "sigmoid", "erf", "sign", "sin", "cos"})
ONE_SIGN = (Sign.POSITIVE, Sign.NEGATIVE)


def honest(carried: CarriedTerm, signs: Signs, build: Builder) -> CarriedTerm:
    """Return a term whose factors are NaN where they are not finite.

    Terms of one sign, none of them 0, give an infinite sum either way and keep their factors.
    """
    if _one_sign(carried, signs) or carried.top.dtype.kind != "float":
        return carried
    factors = tuple(_honest_factor(factor, signs, build) for factor in carried.term.factors)
    return replace(carried, term=replace(carried.term, factors=factors))


def honest_distance(
    carried: CarriedTerm, distances: Distances, signs: Signs, build: Builder
) -> Distance:
    """Return distances that are NaN where a context makes them infinite, as factors are."""
    if carried.top.dtype.kind != "float" or _one_sign(carried, signs):
        return distances.of
    alone = len(carried.term.shifts) == 1 and not carried.term.rotations
    kept = alone and _weighs(carried, signs)

    def of(reference: Reference, context: Expr) -> Expr:
        far = distances.of(reference, context)
        if isinstance(reference, Maximum):
            if distances.is_near(reference, context):
                return far
            nan = literal(math.nan, far.type.dtype)
            return build.where(build.apply("eq", far, math.inf), nan, far)
        return far if kept else finite_or_nan(far, build)

    return of


def finite_scales(scales: tuple[Expr, ...], element: Expr, signs: Signs) -> tuple[Expr, ...]:
    """Return the scales of a monotone map that must be finite for it to tell NaN from infinity."""
    if signs.of(element) in ONE_SIGN:
        return ()
    return tuple(scale for scale in scales if not _is_bounded(scale, signs))


def finite_or_nan(value: Expr, build: Builder) -> Expr:
    """Return a value, or NaN in place of an infinity."""
    nan = literal(math.nan, value.type.dtype)
    return build.where(build.apply("isfinite", value), value, nan)


def _honest_factor(factor: Factor, signs: Signs, build: Builder) -> Factor:
    value = factor.value
    if factor.op == "mul" and not _is_bounded(value, signs):
        return replace(factor, value=finite_or_nan(value, build))
    if factor.op == "div" and value.type.dtype.kind == "float" and signs.of(value) & Sign.ZERO:
        nan = literal(math.nan, value.type.dtype)
        return replace(factor, value=build.where(build.apply("eq", value, 0), nan, value))
    return factor


def _one_sign(carried: CarriedTerm, signs: Signs) -> bool:
    """Return whether the terms of a sum are all positive or all negative."""
    return not carried.term.shifts and not carried.term.rotations and _weighs(carried, signs)


def _weighs(carried: CarriedTerm, signs: Signs) -> bool:
    """Return whether what the shifts are multiplied by has one sign."""
    parts = (carried.term.element, carried.term.outer)
    whole = all(part is None or signs.of(part) in ONE_SIGN for part in parts)
    return whole and not carried.term.chosen


def _is_bounded(value: Expr, signs: Signs) -> bool:
    """Return whether a factor is finite whatever it is made of, as long as it is a number."""
    match value:
        case Literal() | Size():
            return True
        case Cast(operand):
            return _is_bounded(operand, signs) or value.type.dtype.kind != "float"
        case Apply("rsqrt", (operand,)):
            return signs.positive(operand)
        case Apply(op):
            return op in _BOUNDED or value.type.dtype.kind != "float"
        case _:
            return value.type.dtype.kind != "float"
