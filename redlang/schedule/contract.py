"""Recognise a sum of products as a contraction of two operands.

    sum over K of f1 * f2 * ... * fn   -->   sum over K of left * right

Allowed when the factors fall into two groups that both vary with K and each of which has an axis
that the other lacks: then the pair is a matrix product, whatever it is for. Factors are found
through pointwise definitions; a division by something is a factor of the numerator's group.
"""

from __future__ import annotations

from collections.abc import Callable

from redlang.ir.build import Builder
from redlang.ir.program import Apply, Expr, Ref

Lookup = Callable[[str], Expr | None]
"""Name of a pointwise definition → its expression; None for anything else."""


def split_product(
    value: Expr, over: tuple[str, ...], builder: Builder, lookup: Lookup
) -> tuple[Expr, Expr] | None:
    """Return the two operands of a contraction over `over`, or None if `value` is not one."""
    factors = _factors(value, lookup)
    if len(factors) < 2 or value.type.dtype.kind != "float":
        return None
    swept = set(over)
    # A square holds the same factor twice, so that the seed goes by its place.
    place = max(
        range(len(factors)),
        key=lambda i: (swept <= set(factors[i].type.axes), len(factors[i].type.axes)),
    )
    seed = factors.pop(place)
    left, right = [seed], list[Expr]()
    for factor in factors:
        axes = set(factor.type.axes)
        (left if axes <= set(seed.type.axes) and not _private(axes, seed) else right).append(factor)
    if not right:
        # All factors fit inside the largest: peel off whatever shares its sweep but not its rows.
        return None
    operands = _product(left, builder), _product(right, builder)
    a, b = (set(operand.type.axes) for operand in operands)
    if not (swept <= a and swept <= b and a - b - swept and b - a - swept):
        return None
    return operands


def _private(axes: set[str], seed: Expr) -> set[str]:
    return axes - set(seed.type.axes)


def _factors(value: Expr, lookup: Lookup) -> list[Expr]:
    match value:
        case Apply(op="mul", arguments=(a, b)):
            return [*_factors(a, lookup), *_factors(b, lookup)]
        case Ref(name=name):
            body = lookup(name)
            if isinstance(body, Apply) and body.op == "mul":
                return _factors(body, lookup)
            return [value]
        case _:
            return [value]


def _product(factors: list[Expr], builder: Builder) -> Expr:
    product, *rest = factors
    for factor in rest:
        product = builder.mul(product, factor)
    return product
