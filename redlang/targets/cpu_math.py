"""Element functions that LLVM can vectorise: no branch, no call, at most 2 ulp.

f32 and, where a polynomial pays, f64. Every polynomial below is a minimax fit (Remez exchange in
60-digit arithmetic, then rounded); its relative error is written next to it. The tests compare
each function with mpmath on dense samples, denormals, infinities and NaN included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from redlang.targets import processor
from redlang.targets.llvm import F32, F64, I32, I64, Value, declared, polynomial


@dataclass(frozen=True, slots=True)
class Format:
    """What the exponential and the logarithm need to know of a float format.

    Attributes:
        integer: The integer type as wide as the format.
        mantissa, bias: Bits of the fraction; bias of the exponent.
        lowest, highest: exp2 is 0 below the first and infinite above the second.
        ln2: High part with trailing zeros, so that n * high is exact, and the rest.
        log2e: The same for 1 / ln 2.
        exp: (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2.
        exp2: (2^r - 1) / r for |r| <= 1/2.
        log: (2 atanh(s) / s - 2) / s^2 in s^2, for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1).
    """

    integer: ir.IntType
    mantissa: int
    bias: int
    lowest: float
    highest: float
    ln2: tuple[float, float]
    log2e: tuple[float, float]
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    log: tuple[float, ...]


_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_LOG2E = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))


def _split(pair: tuple[float, float], bits: int) -> tuple[float, float]:
    """Return the first `bits` bits of a number given as a sum of two, and the rest."""
    scale = 2.0 ** (bits - math.frexp(pair[0])[1])
    high = math.floor(pair[0] * scale) / scale
    return high, (pair[0] - high) + pair[1]


SINGLE = Format(
    I32,
    *(23, 127),
    *(-151.0, 129.0),
    _split(_LN2, 15),
    _split(_LOG2E, 12),
    # 2^-28.2, 2^-28.9 and 2^-29.2
    (0.49999994, 0.166665167, 0.041668117, 0.00836923346, 0.00138381706),
    (0.693147182, 0.240226477, 0.0555033013, 0.00961836707, 0.00133998261, 0.000153785659),
    (0.666667759, 0.399774522, 0.298744023),
)

DOUBLE = Format(
    I64,
    *(52, 1023),
    *(-1076.0, 1025.0),
    _split(_LN2, 40),
    _split(_LOG2E, 26),
    # 2^-57.8, 2^-64.3 and 2^-58.5
    (
        *(0.5000000000000012, 0.16666666666666466, 0.041666666666519796, 0.008333333333450812),
        *(0.0013888888946560725, 0.000198412696204634, 2.4801489875964943e-05),
        *(2.7557467950159303e-06, 2.763145671647633e-07, 2.504265695234654e-08),
    ),
    (
        *(0.6931471805599453, 0.24022650695910072, 0.055504108664821694, 0.009618129107628364),
        *(0.001333355814639051, 0.00015403530393564397, 1.5252733856531733e-05),
        *(1.3215486665302707e-06, 1.0178050969613434e-07, 7.054945555379361e-09),
        *(4.4567244494968277e-10, 2.566899200611469e-11),
    ),
    (
        *(0.6666666666666735, 0.39999999999407637, 0.28571428744114213, 0.22222198380834862),
        *(0.1818357505967308, 0.15313758122361948, 0.1479904541297394),
    ),
)


def _format(x: Value) -> Format:
    return SINGLE if x.type == F32 else DOUBLE


def _nearest(x: Value, form: Format) -> tuple[Value, Value]:
    """Return the integer nearest to x, as a float and as an integer; |x| < 2^(mantissa - 2)."""
    # Adding 1.5 * 2^mantissa leaves the rounded integer in the low bits of the sum.
    magic = x.constant(1.5 * 2.0**form.mantissa)
    shifted = x + magic
    return shifted - magic, shifted.bits() - magic.bits()


def _power_of_two(n: Value, form: Format) -> Value:
    """Return 2^n as a float, for n within the normal exponents."""
    return ((n + form.bias) << form.mantissa).from_bits()


def _scale(value: Value, n: Value, form: Format) -> Value:
    """Return value * 2^n for a value near 1: two factors reach the denormals, rounding once."""
    half = n >> 1
    return value * _power_of_two(half, form) * _power_of_two(n - half, form)


def _exp_near_zero(r: Value, form: Format) -> Value:
    return polynomial(r, form.exp).times_plus(r * r, r) + 1.0


def _reduced(x: Value, form: Format) -> tuple[Value, Value]:
    """Return r and n with x = n ln 2 + r, |r| <= ln(2) / 2."""
    n, integer = _nearest(x * (_LOG2E[0]), form)
    high, low = form.ln2
    return n.times_plus(-low, n.times_plus(-high, x)), integer


def exp(x: Value) -> Value:
    """Return e^x."""
    form = _format(x)
    bounded = x.at_least(form.lowest * _LN2[0]).at_most(form.highest * _LN2[0])
    r, n = _reduced(bounded, form)
    return _scale(_exp_near_zero(r, form), n, form)


def exp2(x: Value) -> Value:
    """Return 2^x."""
    form = _format(x)
    bounded = x.at_least(form.lowest).at_most(form.highest)
    n, integer = _nearest(bounded, form)
    r = bounded - n
    return _scale(polynomial(r, form.exp2).times_plus(r, 1.0), integer, form)


def _log_parts(x: Value, form: Format) -> tuple[Value, Value, Value, Value]:
    """Return n, f and h, t with log(x) = n ln 2 + f - h + t, sqrt(1/2) <= 1 + f < sqrt(2).

    h = f^2 / 2, and t = s (h + R) with s = f / (2 + f) is log1p's remainder.
    """
    # A denormal is scaled into the normal range first.
    small = x < 2.0 ** (1 - form.bias)
    scaled = small.choose(x * 2.0**form.mantissa, x)
    offset = small.choose(scaled.bits().constant(form.mantissa), 0)
    # Adding the distance from sqrt(1/2) to 1 carries into the exponent where 1 + f >= sqrt(2).
    root_half = x.constant(math.sqrt(0.5)).bits()
    one = x.constant(1.0).bits()
    moved = scaled.bits() + (one - root_half)
    exponent = (moved >> form.mantissa) - form.bias
    fraction = (moved & (2**form.mantissa - 1)) + root_half
    n = _small_integer_to_float(exponent - offset, x, form)
    f = fraction.from_bits() - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    remainder = s * (half_square + z * polynomial(z, form.log))
    return n, f, half_square, remainder


def _small_integer_to_float(n: Value, x: Value, form: Format) -> Value:
    """Convert |n| < 2^mantissa / 2 by adding it to the bits of a large float: AVX2 has no i64."""
    magic = x.constant(1.5 * 2.0**form.mantissa)
    return (magic.bits() + n).from_bits() - magic


def _outside_domain(x: Value, result: Value) -> Value:
    """Give a logarithm its values at 0, infinity, NaN and below 0."""
    result = (x < math.inf).choose(result, x)
    result = x.equals(0.0).choose(-math.inf, result)
    return (x < 0.0).choose(math.nan, result)


def log(x: Value) -> Value:
    """Return the natural logarithm."""
    form = _format(x)
    n, f, half_square, remainder = _log_parts(x, form)
    high, low = form.ln2
    tail = n.times_plus(low, remainder)
    result = n.times_plus(high, f - (half_square - tail))
    return _outside_domain(x, result)


def log2(x: Value) -> Value:
    """Return the logarithm to base 2."""
    form = _format(x)
    n, f, half_square, remainder = _log_parts(x, form)
    # hi + lo = f - h + t, with few enough bits in hi that its product with the high part of
    # log2(e) is exact.
    high_bits = (f - half_square).bits() & -(2 ** (form.mantissa // 2 + 1))
    hi = high_bits.from_bits()
    lo = f - hi - half_square + remainder
    high, low = form.log2e
    exact = hi * high
    tail = lo.times_plus(high, (lo + hi) * low)
    total = n + exact
    return _outside_domain(x, (n - total + exact + tail) + total)


def _exp_moderate(x: Value) -> Value:
    """Return e^x for |x| < 80."""
    form = _format(x)
    r, n = _reduced(x, form)
    return _exp_near_zero(r, form) * _power_of_two(n, form)


# (tanh(x) / x - 1) / x^2 in x^2 for |x| <= 0.6: 2^-28.4
_TANH = (-0.333332986, 0.133319244, -0.0537838563, 0.0207960475, -0.00589523977)


def tanh(x: Value) -> Value:
    """Return the hyperbolic tangent."""
    if x.type == F64:
        return _library("tanh", x)
    z = x * x
    near = polynomial(z, _TANH).times_plus(x * z, x)
    magnitude = abs(x)
    # From 10 on the result rounds to 1.
    far = 1.0 - 2.0 / (_exp_moderate(magnitude.at_most(10.0) * 2.0) + 1.0)
    return (magnitude < 0.55).choose(near, far).with_sign_of(x)


def sigmoid(x: Value) -> Value:
    """Return 1 / (1 + e^-x)."""
    decay = exp(-abs(x))
    above = (x < 0.0).choose(decay, 1.0)
    below = decay + 1.0
    lost = (1.0 - below) + decay
    inverse = 1.0 / below
    quotient = above * inverse
    # One step of correction makes up for the roundings of the sum, the inverse and the product.
    remainder = quotient.times_plus(-lost, _less_product(above, quotient, below))
    return remainder.times_plus(inverse, quotient)


def _less_product(x: Value, y: Value, z: Value) -> Value:
    """Return x - y z, where y z is close to x, as if y z were not rounded."""
    if processor.fuses():
        return (-y).times_plus(z, x)
    # Products of halves of the bits are exact (Dekker, "A floating-point technique", 1971).
    high, low = zip(_halves(y), _halves(z), strict=True)
    rest = ((x - high[0] * high[1]) - high[0] * low[1]) - low[0] * high[1]
    return rest - low[0] * low[1]


def _halves(x: Value) -> tuple[Value, Value]:
    """Return the upper half of the bits of a fraction, and the rest."""
    low_bits = (_format(x).mantissa + 2) // 2
    high = (x.bits() & -(1 << low_bits)).from_bits()
    return high, x - high


# erf(x) / x - 1 in x^2 for |x| <= 1: 2^-29.6; log(erfc(x)) for 1 <= x <= 4: 2^-35.5 of erf
_ERF = (
    *(0.128379166, -0.37612626, 0.112835854, -0.0268538129),
    *(0.00518833008, -0.000801021175, 7.85391239e-05),
)
_LOG_ERFC = (
    *(0.000188456819, -1.12958026, -0.6332165, -0.108421996),
    *(0.0252102762, -0.00420526182, 0.000441468146, -2.16972439e-05),
)


def erf(x: Value) -> Value:
    """Return the error function."""
    if x.type == F64:
        return _library("erf", x)
    near = polynomial(x * x, _ERF).times_plus(x, x)
    magnitude = abs(x)
    # From 3.92 on the result rounds to 1.
    far = 1.0 - _exp_moderate(polynomial(magnitude.at_most(4.0), _LOG_ERFC))
    return (magnitude < 1.0).choose(near, far.with_sign_of(x))


def sqrt(x: Value) -> Value:
    """Return the square root, correctly rounded."""
    return x.call("sqrt")


def rsqrt(x: Value) -> Value:
    """Return 1 / sqrt(x)."""
    return 1.0 / sqrt(x)


def power(x: Value, y: Value) -> Value:
    """Return x^y with C's special cases."""
    if x.type == F64:
        return x.call("pow", y)
    # |x|^y = 2^(y log2 |x|) in f64 keeps 2^-43 at the largest exponent that is finite in f32.
    wide = y.to_float(F64)
    magnitude = exp2(wide * log2(abs(x).to_float(F64))).to_float(F32)
    floor = y.call("floor")
    half = y * 0.5
    is_odd = floor.equals(y) & half.call("floor").differs(half)
    signed = is_odd.choose(magnitude.with_sign_of(x), magnitude)
    real_root = (x < 0.0) & floor.differs(y)
    undefined = abs(x).equals(math.inf).choose(magnitude, math.nan)
    result = real_root.choose(undefined, signed)
    # 1^y, x^0 and (-1)^±inf are 1 even where log2 gives 0 * inf or NaN.
    infinite = abs(y).equals(math.inf) & abs(x).equals(1.0)
    return (x.equals(1.0) | y.equals(0.0) | infinite).choose(1.0, result)


def ldexp(x: Value, n: Value) -> Value:
    """Return x * 2^n for an int64 n, rounding once."""
    bounded = n.at_least(-2200).at_most(2200)
    if x.type == F64:
        return _library("ldexp", x, bounded.truncate(I32))
    # In f64 every product is exact, except where the f32 result is 0 or infinite anyway.
    bounded = bounded.at_least(-300).at_most(300)
    return (x.to_float(F64) * _power_of_two(bounded, DOUBLE)).to_float(F32)


def _library(name: str, x: Value, *others: Value) -> Value:
    """Call the C library; used where a polynomial would not pay."""
    arguments = [x.raw, *(other.raw for other in others)]
    kind = ir.FunctionType(x.type, [argument.type for argument in arguments])
    return x.wrap(x.builder.call(declared(x.builder.module, name, kind), arguments))
