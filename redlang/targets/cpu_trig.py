"""Sine and cosine of f32 for arguments of any size; f64 calls the C library.

An f32 is m * 2^e with a 24-bit integer m, so x * 2/pi modulo 4 (in quarter turns) is m times a
number that depends on e alone, modulo 4. A table holds that number for each e as a part of 29 bits,
whose product with m is exact in f64, and the rest. No argument needs another path.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from llvmlite import ir

from redlang.targets.llvm import F32, F64, I32, I64, Value, polynomial, set_scope
from redlang.targets.turns import two_over_pi

# (sin(t) / t - 1) / t^2 and (cos(t) - 1) / t^2 in t^2, |t| <= pi / 4: 2^-47.5 and 2^-43.6
_SIN = (
    *(-0.16666666666629992, 0.008333333325012281, -0.0001984126369223038),
    *(2.755533179536131e-06, -2.4759876072169425e-08),
)
_COS = (
    *(-0.49999999999483963, 0.041666666552486034, -0.001388888060871782),
    *(2.4798950026862858e-05, -2.7174015266659306e-07),
)
_HIGH_BITS = 29
_EXPONENTS = 255
_TABLE = "redlang.quarter_turns"


@cache
def quarter_turns() -> tuple[tuple[float, float], ...]:
    """Return 2^(E - 150) * 2/pi modulo 4 as high and low parts, for biased exponents E."""
    rows = []
    for exponent in range(_EXPONENTS):
        value = two_over_pi() * Fraction(2) ** (max(exponent, 1) - 150) % 4
        scale = Fraction(2) ** (_HIGH_BITS - math.frexp(value)[1])
        high = math.floor(value * scale) / scale
        rows.append((float(high), float(value - high)))
    return tuple(rows)


def _table(x: Value) -> ir.GlobalVariable:
    module = x.builder.module
    known = module.globals.get(_TABLE)
    if known is not None:
        return known
    numbers = [number for row in quarter_turns() for number in row]
    kind = ir.ArrayType(F64, len(numbers))
    table = ir.GlobalVariable(module, kind, _TABLE)
    table.initializer = ir.Constant(kind, numbers)
    table.global_constant = True
    table.linkage = "internal"
    return table


def _quarter(x: Value) -> tuple[Value, Value]:
    """Return n modulo 4 and t with |x| = n pi/2 + t, |t| <= pi / 4, in f64."""
    bits = x.bits() & 0x7FFFFFFF
    exponent = bits.shift_in_zeros(23)
    implicit = exponent.equals(0).choose(exponent.constant(0), 1 << 23)
    significand = ((bits & 0x7FFFFF) | implicit).to_float(F64)
    # Infinity and NaN read the last row; the caller replaces their results.
    row = (exponent > _EXPONENTS - 1).choose(_EXPONENTS - 1, exponent).zero_extend(I64) << 1
    high, low = (_entry(x, row + part) for part in (0, 1))
    exact = significand * high
    nearest = exact.call("rint")
    turns = (exact - nearest) + significand * low
    # |exact| < 2^26: the low bits of nearest + 1.5 * 2^52 are the integer.
    n = (nearest + 1.5 * 2.0**52).bits().truncate(I32) & 3
    return n, turns * (math.pi / 2)


def _entry(x: Value, index: Value) -> Value:
    builder = x.builder
    zero = ir.Constant(I64, 0)
    entry = builder.load(builder.gep(_table(x), [zero, index.raw], inbounds=True))
    set_scope(builder.module, entry, _TABLE)
    return x.wrap(entry)


def _circle(x: Value, quarter: int) -> Value:
    """Return the sine of |x| + quarter * pi/2."""
    n, t = _quarter(x)
    n = n + quarter
    z = t * t
    sine = polynomial(z, _SIN).times_plus(z * t, t)
    cosine = polynomial(z, _COS).times_plus(z, 1.0)
    magnitude = (n & 1).equals(0).choose(sine, cosine).to_float(F32)
    signed = (magnitude.bits() ^ ((n & 2) << 30)).from_bits()
    return (abs(x) < math.inf).choose(signed, math.nan)


def sin(x: Value) -> Value:
    """Return the sine."""
    if x.type == F64:
        return x.call("sin")
    value = _circle(x, 0)
    sign = x.bits() & -(2**31)
    return (value.bits() ^ sign).from_bits()


def cos(x: Value) -> Value:
    """Return the cosine."""
    if x.type == F64:
        return x.call("cos")
    return _circle(x, 1)
