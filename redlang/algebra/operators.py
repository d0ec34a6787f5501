"""What element functions and reductions obey: signs, order, products, as data.

Everything that the algebra believes about an operator without a proof of its own stands in `LAWS`;
a proof that uses a fact names it. Signs are those of real arithmetic: `exp(x)` is positive although
it may underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag
from typing import Literal


class Sign(Flag):
    """The signs that a value may have."""

    NEGATIVE = 1
    ZERO = 2
    POSITIVE = 4


NONNEGATIVE = Sign.ZERO | Sign.POSITIVE
NONPOSITIVE = Sign.ZERO | Sign.NEGATIVE
ANY = NONNEGATIVE | Sign.NEGATIVE

Order = Literal["", "rising", "falling"]
SignRule = Callable[..., Sign]


@dataclass(frozen=True, slots=True)
class Law:
    """What an element function obeys.

    Attributes:
        sign: The result's possible signs from the arguments'.
        order: How the function moves in its first argument, the others fixed, wherever it is
            defined. Empty: neither, or it depends on the other arguments.
        strict: Whether different arguments always give different results.
        domain: Signs of the first argument for which the result is a number.
        product: Whether f(a*b) = f(a)*f(b) for arguments in the domain.
    """

    sign: SignRule
    order: Order = ""
    strict: bool = False
    domain: Sign = ANY
    product: bool = False


def flipped(sign: Sign) -> Sign:
    """Return the signs of -x."""
    result = sign & Sign.ZERO
    if sign & Sign.NEGATIVE:
        result |= Sign.POSITIVE
    if sign & Sign.POSITIVE:
        result |= Sign.NEGATIVE
    return result


def magnitude(sign: Sign) -> Sign:
    """Return the signs of abs(x)."""
    return (sign & Sign.ZERO) | (Sign.POSITIVE if sign & ~Sign.ZERO else Sign(0))


def summed(a: Sign, b: Sign) -> Sign:
    """Return the signs of a + b."""
    result = Sign(0)
    for one in a:
        for other in b:
            if one is other or other is Sign.ZERO:
                result |= one
            elif one is Sign.ZERO:
                result |= other
            else:
                return ANY
    return result


def multiplied(a: Sign, b: Sign) -> Sign:
    """Return the signs of a * b."""
    result = (a | b) & Sign.ZERO
    if a & Sign.POSITIVE:
        result |= b & ~Sign.ZERO
    if a & Sign.NEGATIVE:
        result |= flipped(b) & ~Sign.ZERO
    return result


def larger(a: Sign, b: Sign) -> Sign:
    """Return the signs of max(a, b)."""
    result = Sign(0)
    for one in a:
        for other in b:
            result |= Sign(max(one.value, other.value))
    return result


def smaller(a: Sign, b: Sign) -> Sign:
    """Return the signs of min(a, b)."""
    return flipped(larger(flipped(a), flipped(b)))


def _any(*_: Sign) -> Sign:
    return ANY


def _nonnegative(*_: Sign) -> Sign:
    return NONNEGATIVE


def _positive(*_: Sign) -> Sign:
    return Sign.POSITIVE


def _same(sign: Sign, *_: Sign) -> Sign:
    return sign


def _toward_zero(sign: Sign) -> Sign:
    return sign | Sign.ZERO


_TEST = Law(_nonnegative)

LAWS: dict[str, Law] = {
    "add": Law(summed, "rising", strict=True),
    "sub": Law(lambda a, b: summed(a, flipped(b)), "rising", strict=True),
    "mul": Law(multiplied),
    "div": Law(multiplied),
    "floordiv": Law(_any),
    "mod": Law(_any),
    "pow": Law(lambda a, _: Sign.POSITIVE if a is Sign.POSITIVE else ANY),
    "neg": Law(flipped, "falling", strict=True),
    "eq": _TEST,
    "ne": _TEST,
    "lt": _TEST,
    "le": _TEST,
    "gt": _TEST,
    "ge": _TEST,
    "and": Law(_any),
    "or": Law(_any),
    "xor": Law(_any),
    "not": Law(_any),
    "exp": Law(_positive, "rising", strict=True),
    "exp2": Law(_positive, "rising", strict=True),
    "log": Law(_any, "rising", strict=True, domain=Sign.POSITIVE),
    "log2": Law(_any, "rising", strict=True, domain=Sign.POSITIVE),
    "sqrt": Law(_same, "rising", strict=True, domain=NONNEGATIVE, product=True),
    "rsqrt": Law(_positive, "falling", strict=True, domain=Sign.POSITIVE, product=True),
    "abs": Law(magnitude, product=True),
    "sign": Law(_same, "rising", product=True),
    "tanh": Law(_same, "rising", strict=True),
    "sigmoid": Law(_positive, "rising", strict=True),
    "erf": Law(_same, "rising", strict=True),
    "sin": Law(_any),
    "cos": Law(_any),
    "floor": Law(lambda a: a | Sign.ZERO if a is not Sign.NEGATIVE else a, "rising"),
    "ceil": Law(lambda a: a | Sign.ZERO if a is not Sign.POSITIVE else a, "rising"),
    "round": Law(_toward_zero, "rising"),
    "minimum": Law(smaller, "rising"),
    "maximum": Law(larger, "rising"),
    "clip": Law(lambda x, low, high: smaller(larger(x, low), high), "rising"),
    "where": Law(lambda _, a, b: a | b),
    "isnan": _TEST,
    "isfinite": _TEST,
    "ldexp": Law(_same, "rising"),
}

IDENTITIES: dict[str, bool | int | float] = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),
    "min": float("inf"),
    "any": False,
    "all": True,
    "count": 0,
}
"""The value of a reduction over nothing (contract K1)."""

SPLITTABLE: frozenset[str] = frozenset(IDENTITIES)
"""Reductions over several axes that equal one over some of them, then one over the others."""

OUTER: dict[str, str] = {"count": "sum"}
"""The outer reduction of a split one, where it is another."""

SWAPPED: dict[str, str] = {
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
}
"""What a reduction by order becomes under a falling map."""

FOLDED_SIGNS: dict[str, SignRule] = {
    "sum": lambda a: ANY if a & Sign.POSITIVE and a & Sign.NEGATIVE else a,
    "prod": lambda a: a if not a & Sign.NEGATIVE else ANY,
    "max": _same,
    "min": _same,
    "any": _nonnegative,
    "all": _nonnegative,
    "count": _nonnegative,
    "topk": _same,
}
"""Signs of a reduction over at least one element from those of its operand."""

OF_NOTHING: dict[str, Sign] = {
    "sum": Sign.ZERO,
    "prod": Sign.POSITIVE,
    "max": Sign.NEGATIVE,
    "min": Sign.POSITIVE,
    "any": Sign.ZERO,
    "all": Sign.POSITIVE,
    "count": Sign.ZERO,
    "topk": Sign.NEGATIVE,
}
"""Signs of a reduction over nothing."""
