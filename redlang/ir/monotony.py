"""Signs of expressions, and strictly monotone maps: what arg-reductions may look through.

Facts hold for real numbers where the expression is defined; a NaN ranks before every number, before
a map and after it. A sign is a set of what a value may be (negative, zero, positive), kept as bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias, assert_never

from redlang.ir import walk
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Reduce,
    Ref,
    Scalar,
    Size,
)
from redlang.values import dataclass

NEGATIVE, ZERO, POSITIVE = 1, 2, 4
NONNEGATIVE = ZERO | POSITIVE
UNKNOWN = NEGATIVE | ZERO | POSITIVE

Lookup: TypeAlias = Callable[[str], Expr | Reduce | None]
"""Returns what a `Ref` stands for, if that is known."""

_ALWAYS = {
    "exp": POSITIVE,
    "exp2": POSITIVE,
    "sigmoid": POSITIVE,
    "rsqrt": POSITIVE,
    "sqrt": NONNEGATIVE,
    "abs": NONNEGATIVE,
}
WRAPPING = ("abs", "add", "floordiv", "mul", "neg", "pow", "sub")
"""What can leave the range of int64, so that signs of integers do not follow."""
_ODD = ("tanh", "erf", "sign", "neg")
_INCREASING = ("exp", "exp2", "tanh", "sigmoid", "erf")
_ROOTS = {"sqrt": 1, "log": 1, "log2": 1, "rsqrt": -1}
"""Strictly monotone where the argument is not negative, with their direction."""


@dataclass(frozen=True, slots=True)
class Step:
    """One strictly monotone map, seen from outside: `position` holds what it maps.

    `direction` is 1 for an increasing map, -1 for a decreasing one.
    """

    position: int
    direction: int


def step(expr: Expr, axes: Collection[str], lookup: Lookup) -> Step | None:
    """Return how `expr` maps one of its arguments strictly monotonely along `axes`, if it does.

    Every other argument must not vary along `axes`.
    """
    if expr.type.dtype.kind != "float":
        return None
    if isinstance(expr, Cast):
        # Widening is exact; a cast that rounds makes ties.
        exact = not expr.explicit and expr.operand.type.dtype.kind == "float"
        return Step(0, 1) if exact and expr.operand.type.dtype.bits <= expr.to.bits else None
    if not isinstance(expr, Apply):
        return None
    varying = [i for i, a in enumerate(expr.arguments) if not set(axes).isdisjoint(a.type.axes)]
    if len(varying) != 1:
        return None
    (position,) = varying
    direction = _direction(expr, position, axes, lookup)
    return None if direction == 0 else Step(position, direction)


def _direction(expr: Apply, position: int, axes: Collection[str], lookup: Lookup) -> int:
    """Return 1 or -1 where the operator is strictly monotone in this argument, else 0."""
    mapped = expr.arguments[position]
    match expr.op:
        case "add":
            return 1
        case "sub":
            return 1 if position == 0 else -1
        case "neg":
            return -1
        case "mul":
            # A sum over nothing is 0 and makes ties; as a divisor it leaves the range of numbers.
            return _strict(sign(expr.arguments[1 - position], lookup, axes))
        case "div" if position == 0:
            return _strict(sign(expr.arguments[1], lookup))
        case "div":
            # c / x falls where c > 0, on either side of x = 0, but not across it.
            one_sided = sign(mapped, lookup) in (POSITIVE, NEGATIVE)
            return -_strict(sign(expr.arguments[0], lookup)) if one_sided else 0
        case "pow" if position == 0:
            return _power(expr, sign(mapped, lookup))
        case op if op in _INCREASING:
            return 1
        case op if op in _ROOTS:
            return _ROOTS[op] if not sign(mapped, lookup) & NEGATIVE else 0
        case _:
            return 0


def _strict(bits: int) -> int:
    return {POSITIVE: 1, NEGATIVE: -1}.get(bits, 0)


def _power(expr: Apply, base: int) -> int:
    exponent = expr.arguments[1]
    if not isinstance(exponent, Literal) or exponent.value == 0:
        return 0
    if exponent.value > 0 and (not base & NEGATIVE or exponent.value % 2 == 1):
        return 1
    return -1 if exponent.value < 0 and base == POSITIVE else 0


def sign(expr: Expr, lookup: Lookup, axes: Collection[str] | None = None) -> int:
    """Return what `expr` may be, as bits of NEGATIVE, ZERO and POSITIVE.

    Args:
        expr: As resolved or normalised.
        lookup: What names stand for.
        axes: Those along which elements exist that are compared: sums of some elements of these
            axes, and over other axes, may be over nothing. None takes it that none is.
    """
    if expr.type.dtype.kind == "uint":
        return NONNEGATIVE
    match expr:
        case Literal(value):
            return NEGATIVE if value < 0 else ZERO if value == 0 else POSITIVE
        case Index():
            return NONNEGATIVE
        case Size(axis):
            # Where an axis is empty there is no element to compare.
            return POSITIVE if axes is None or axis in axes else NONNEGATIVE
        case Scalar() | Load():
            return NONNEGATIVE if expr.type.dtype.kind == "bool" else UNKNOWN
        case Ref(name):
            return _reference(name, lookup, axes)
        case Cast(operand, to, _, explicit):
            if to.kind == "int" and operand.type.dtype.kind == "uint":
                return UNKNOWN
            bits = sign(operand, lookup, axes)
            return bits | ZERO if explicit else bits
        case Mask(_, operand):
            return sign(operand, lookup, axes)
        case Fill(operand, value):
            return sign(operand, lookup, axes) | sign(value, lookup, axes)
        case Apply(op):
            if expr.type.dtype.kind == "int" and op in WRAPPING and not is_small(expr):
                return UNKNOWN
            return _apply_sign(expr, lookup, axes)
        case _:
            assert_never(expr)


def is_small(expr: Expr) -> bool:
    """Return whether an integer is made of indices, sizes and literals, too small to wrap."""
    leaves = (node for node in walk.nodes(expr) if isinstance(node, Load | Ref | Scalar))
    return all(leaf.type.dtype.kind == "bool" for leaf in leaves)


def _reference(name: str, lookup: Lookup, axes: Collection[str] | None) -> int:
    value = lookup(name)
    if value is None:
        return UNKNOWN
    if not isinstance(value, Reduce):
        return sign(value, lookup, axes)
    whole = value.types[0].dtype.kind == "int"
    match value.op:
        case "sum":
            bits = sign(value.operand, lookup, axes)
            return UNKNOWN if whole else bits | (0 if _somewhere(value, axes) else ZERO)
        case "prod":
            bits = sign(value.operand, lookup, axes)
            return UNKNOWN if whole or bits & NEGATIVE else bits
        case "max" | "min":
            # Over nothing: infinite, or the integer that is furthest from all others.
            extreme = NEGATIVE if value.op == "max" else POSITIVE
            return sign(value.operand, lookup, axes) | (extreme if whole else 0)
        case "count" | "any" | "all":
            return NONNEGATIVE
        case _:
            return UNKNOWN


def _somewhere(value: Reduce, axes: Collection[str] | None) -> bool:
    """Return whether a reduction has an element wherever `axes` have."""
    partial = value.condition is not None or value.operand.type.absent
    return axes is None or (not partial and set(value.axes) <= set(axes))


def _apply_sign(expr: Apply, lookup: Lookup, axes: Collection[str] | None) -> int:
    if expr.op in _ALWAYS:
        return _ALWAYS[expr.op]
    if expr.type.dtype.kind == "bool":
        return NONNEGATIVE
    bits = [sign(argument, lookup, axes) for argument in expr.arguments]
    match expr.op:
        case "add":
            return _sum(bits[0], bits[1])
        case "sub":
            return _sum(bits[0], _negated(bits[1]))
        case "mul" if expr.arguments[0] == expr.arguments[1]:
            return _product(bits[0], bits[0]) if bits[0] != UNKNOWN else NONNEGATIVE
        case "mul" | "div":
            return _product(bits[0], bits[1])
        case "pow":
            return _power_sign(expr, bits[0])
        case "floordiv" | "mod":
            # By zero both give 0, and a remainder has the divisor's sign.
            quotient = _product(bits[0], bits[1]) if expr.op == "floordiv" else bits[1]
            return quotient | ZERO
        case "maximum":
            return _pairs(bits[0], bits[1], max)
        case "minimum":
            return _pairs(bits[0], bits[1], min)
        case "clip":
            return _pairs(_pairs(bits[0], bits[1], max), bits[2], min)
        case "where":
            return bits[1] | bits[2]
        case op if op in _ODD:
            return _negated(bits[0]) if op == "neg" else bits[0]
        case _:
            return UNKNOWN


def _power_sign(expr: Apply, base: int) -> int:
    if base == POSITIVE:
        return POSITIVE
    exponent = expr.arguments[1]
    even = isinstance(exponent, Literal) and exponent.value > 0 and exponent.value % 2 == 0
    if not even:
        return base if not base & NEGATIVE else UNKNOWN
    return POSITIVE if not base & ZERO else NONNEGATIVE


def _members(bits: int) -> list[int]:
    return [value for value, bit in ((-1, NEGATIVE), (0, ZERO), (1, POSITIVE)) if bits & bit]


def _of(values: Iterable[int]) -> int:
    bits = 0
    for value in values:
        bits |= NEGATIVE if value < 0 else ZERO if value == 0 else POSITIVE
    return bits


def _pairs(left: int, right: int, join: Callable[[int, int], int]) -> int:
    return _of(join(a, b) for a in _members(left) for b in _members(right))


def _product(left: int, right: int) -> int:
    return _pairs(left, right, lambda a, b: a * b)


def _sum(left: int, right: int) -> int:
    both = left | right
    if both & NEGATIVE and both & POSITIVE:
        return UNKNOWN
    if left & ZERO and right & ZERO:
        return both
    return both & ~ZERO


def _negated(bits: int) -> int:
    return _of(-value for value in _members(bits))
