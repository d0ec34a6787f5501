"""Element functions that need no approximation: extrema, rounding, integers, conversions.

What they do at the edges is the language's: extrema and sign propagate NaN, -0 < +0, integers wrap
in int64, `//` and `%` floor and give 0 by zero, floats become integers toward zero and saturate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from redlang.targets.llvm import I1, I64, Value


def maximum(a: Value, b: Value) -> Value:
    """Return the larger; NaN if either is."""
    return a.call("maximum" if a.is_float else "umax" if a.unsigned else "smax", b)


def minimum(a: Value, b: Value) -> Value:
    """Return the smaller; NaN if either is."""
    return a.call("minimum" if a.is_float else "umin" if a.unsigned else "smin", b)


def clip(x: Value, low: Value, high: Value) -> Value:
    """Return x moved into [low, high]; high wins where they cross."""
    return minimum(maximum(x, low), high)


def sign(x: Value) -> Value:
    """Return -1, 0 or 1; NaN stays."""
    if not x.is_float:
        return minimum(x, x.constant(1)) if x.unsigned else x.call("smax", -1).call("smin", 1)
    magnitude = x.equals(0.0).choose(0.0, x.constant(1.0).with_sign_of(x))
    return x.is_nan().choose(x, magnitude)


def floor(x: Value) -> Value:
    """Return the largest integer that is not above x."""
    return x.call("floor") if x.is_float else x


def ceil(x: Value) -> Value:
    """Return the smallest integer that is not below x."""
    return x.call("ceil") if x.is_float else x


def round_even(x: Value) -> Value:
    """Return the nearest integer, halves to even."""
    return x.call("rint") if x.is_float else x


def is_finite(x: Value) -> Value:
    """Say whether x is neither infinite nor NaN."""
    return abs(x) < math.inf


def floor_divide(a: Value, b: Value) -> Value:
    """Return a // b."""
    if a.is_float:
        return _float_divide(a, b)[0]
    quotient, remainder, usable = _divide(a, b)
    if a.unsigned:
        return usable.choose(quotient, 0)
    floored = (remainder.differs(0) & ((remainder ^ b) < 0)).choose(quotient - 1, quotient)
    # The quotient by -1 wraps at the smallest integer.
    by_minus_one = b.equals(-1).choose(-a, 0)
    return usable.choose(floored, by_minus_one)


def modulo(a: Value, b: Value) -> Value:
    """Return a % b, with the sign of b."""
    if a.is_float:
        return _float_divide(a, b)[1]
    _, remainder, usable = _divide(a, b)
    if a.unsigned:
        return usable.choose(remainder, 0)
    moved = (remainder.differs(0) & ((remainder ^ b) < 0)).choose(remainder + b, remainder)
    return usable.choose(moved, 0)


def _divide(a: Value, b: Value) -> tuple[Value, Value, Value]:
    """Return the truncated quotient and remainder, and whether the machine can divide by b.

    It traps on division by 0, and on the smallest integer by -1.
    """
    usable = b.differs(0) if a.unsigned else b.differs(0) & b.differs(-1)
    divisor = usable.choose(b, 1)
    build = a.builder.udiv if a.unsigned else a.builder.sdiv
    quotient = a.wrap(build(a.raw, divisor.raw))
    return quotient, a - quotient * divisor, usable


def _float_divide(a: Value, b: Value) -> tuple[Value, Value]:
    """Return a // b and a % b as Python and NumPy have them: both from the exact remainder."""
    exact = a.wrap(a.builder.frem(a.raw, b.raw))
    move = exact.differs(0.0) & ((exact < 0.0) ^ (b < 0.0))
    remainder = exact.equals(0.0).choose(a.constant(0.0).with_sign_of(b), exact)
    multiple = (a - exact) / b
    multiple = move.choose(multiple - 1.0, multiple)
    below = multiple.call("floor")
    near = (multiple - below > 0.5).choose(below + 1.0, below)
    ratio = a / b
    quotient = multiple.equals(0.0).choose(a.constant(0.0).with_sign_of(ratio), near)
    return b.equals(0.0).choose(ratio, quotient), move.choose(remainder + b, remainder)


def logical_not(x: Value) -> Value:
    """Invert a truth value or the bits of an integer."""
    return x ^ (1 if x.type == I1 else -1)


def fraction(x: Value) -> Value:
    """Return the mantissa of x in [1/2, 1), with its sign; 0, infinities and NaN as they are."""
    bits, _, ordinary = _taken_apart(x)
    form = _FORMATS[x.bits().type.width]
    half = (form.bias - 1) << form.mantissa
    fraction_ = (bits & ~(form.top << form.mantissa) | half).from_bits()
    return ordinary.choose(fraction_, x)


def exponent(x: Value) -> Value:
    """Return n as int64 with x = fraction(x) * 2^n; 0 for 0, infinities and NaN."""
    _, power, ordinary = _taken_apart(x)
    power = power if power.type == I64 else power.sign_extend(I64)
    return ordinary.choose(power, 0)


@dataclass(frozen=True, slots=True)
class _Format:
    mantissa: int
    bias: int
    top: int


_FORMATS = {32: _Format(23, 127, 0xFF), 64: _Format(52, 1023, 0x7FF)}


def _taken_apart(x: Value) -> tuple[Value, Value, Value]:
    """Return the bits of x scaled out of the denormals, its exponent, and if x is finite, not 0."""
    form = _FORMATS[x.bits().type.width]
    small = abs(x) < 2.0 ** (1 - form.bias)
    bits = small.choose(x * 2.0**form.mantissa, x).bits()
    raised = small.choose(bits.constant(form.mantissa), 0)
    power = (bits.shift_in_zeros(form.mantissa) & form.top) - (form.bias - 1) - raised
    return bits, power, is_finite(x) & x.differs(0.0)


def ranks_above(x: Value, best: Value, place: Value) -> Value:
    """Say whether x comes before an entry of a list of largest values; NaN comes first of all.

    An entry whose place is negative is empty.
    """
    return _ranks(x, best, place, x > best)


def ranks_below(x: Value, best: Value, place: Value) -> Value:
    """Say whether x comes before an entry of a list of smallest values."""
    return _ranks(x, best, place, x < best)


def _ranks(x: Value, best: Value, place: Value, beats: Value) -> Value:
    if x.is_float:
        beats = (x.is_nan() | beats) & (best.is_nan() ^ 1)
    return (place < 0) | beats
