"""Element functions that Numba has not, drops NaN in, or is slow at.

Each states its largest error in units in the last place (ulp) against the exact value. Everything
else (`log`, `tanh`, `erf`, ...) is libdevice's; sines have a module of their own.
`lg2.approx` is not here: near 1 it is off by more than 2 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from redlang.targets.kinds import F32, F64, FLOAT32, FLOAT64, I32, Kind, Signature
from redlang.targets.ptx.inline import Typed, Values, Word, asm, define_generic

_LOG2_E = 1.4426950408889634
_LOG2_E_HIGH = 1.44269502162933349609375
"""log2(e) rounded to f32; the rest is `_LOG2_E - _LOG2_E_HIGH`."""


def _fma(builder: ir.IRBuilder, a: ir.Value, b: float, c: ir.Value, mode: str = "rn") -> ir.Value:
    text = f"fma.{mode}.f32 $0, $1, $2, $3;"
    return asm(builder, F32, text, "=f,f,f,f", [a, ir.Constant(F32, b), c])


def _exp_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e^x as 2^n · 2^r with n = x log2 e rounded; subnormal results included.

    x log2 e is never rounded as a whole: one fused operation subtracts n from the product with the
    upper part of log2 e, another adds the lower part. Error: see `_scaled_power`.
    """
    minus_n, power = _whole_power(builder, x, _LOG2_E)
    r = _fma(builder, x, _LOG2_E_HIGH, minus_n)
    return _scaled_power(builder, _fma(builder, x, _LOG2_E - _LOG2_E_HIGH, r), power)


def _short_exp_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e^x by one product and one instruction; subnormal results are 0.

    The product is off by half an ulp of up to 128, so the result by up to 2^-17 of itself: a
    hundredth of an ulp of f16.
    """
    scaled = builder.fmul(x, ir.Constant(F32, _LOG2_E))
    return asm(builder, F32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled])


def near_reciprocal(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1/x for normal x, off by at most 1 ulp."""
    return asm(builder, F32, "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x])


def _short_sigmoid_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x), as exact as `_short_exp_f32`; an infinite e^-x makes it 0."""
    below = _short_exp_f32(builder, builder.fmul(x, ir.Constant(F32, -1.0)))
    return near_reciprocal(builder, builder.fadd(below, ir.Constant(F32, 1.0)))


def sigmoid_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x), with the exponential of -|x| only, which cannot overflow.

    In f32 the sum, between 1 and 2, is inverted by an instruction and a Newton step, which costs a
    third of a division.
    """
    one, zero = ir.Constant(x.type, 1.0), ir.Constant(x.type, 0.0)
    small = exp_value(builder, builder.fsub(zero, libdevice(builder, "fabs", x)))
    upper = builder.select(builder.fcmp_unordered(">=", x, zero), one, small)
    total = builder.fadd(one, small)
    if x.type != F32:
        return builder.fdiv(upper, total)
    inverse = near_reciprocal(builder, total)
    minus = builder.fsub(zero, inverse)
    text = "fma.rn.f32 $0, $1, $2, $3;"
    error = asm(builder, F32, text, "=f,f,f,f", [minus, total, one])
    inverse = asm(builder, F32, text, "=f,f,f,f", [error, inverse, inverse])
    return builder.fmul(upper, inverse)


_TANH_END = 6.3
_TANH_ABOVE = (0.9999995231628418, 0.12406613677740097, 0.0023713347036391497, 4.391735274111852e-6)
_TANH_BELOW = (1.0, 0.4573957920074463, 0.021508269011974335, 0.00015275395708158612)
"""tanh(x) = x p(x^2) / q(x^2) for |x| <= 6.3, where tanh is 1 but for 2^-17.2."""


def _short_tanh_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit tanh as a quotient of polynomials; off by at most 2^-17 of itself."""
    end, minus = (ir.Constant(F32, bound) for bound in (_TANH_END, -_TANH_END))
    raised = extreme_value(builder, "max", x, minus, signed=True)
    x = extreme_value(builder, "min", raised, end, signed=True)
    z = builder.fmul(x, x)
    above, below = (polynomial(builder, z, parts) for parts in (_TANH_ABOVE, _TANH_BELOW))
    return builder.fmul(builder.fmul(x, above), near_reciprocal(builder, below))


def polynomial(builder: ir.IRBuilder, z: ir.Value, parts: Sequence[float]) -> ir.Value:
    """Return the sum of parts[i] z^i."""
    *rest, last = parts
    total: ir.Value = ir.Constant(F32, last)
    for part in reversed(rest):
        total = asm(
            builder,
            F32,
            "fma.rn.f32 $0, $1, $2, $3;",
            "=f,f,f,f",
            [total, z, ir.Constant(F32, part)],
        )
    return total


def _short_tanh_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _short_tanh_f32(builder, x) if x.type == F32 else libdevice(builder, "tanh", x)


def _short_sigmoid_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _short_sigmoid_f32(builder, x) if x.type == F32 else sigmoid_value(builder, x)


def _short_exp_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _short_exp_f32(builder, x) if x.type == F32 else libdevice(builder, "exp", x)


def _exp2_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """2^x as 2^n · 2^(x - n), as `_exp_f32`; the difference is exact."""
    minus_n, power = _whole_power(builder, x, 1.0)
    return _scaled_power(builder, builder.fadd(x, minus_n), power)


def exp2_of_two(builder: ir.IRBuilder, x: ir.Value, off: ir.Value) -> ir.Value:
    """Emit 2^(x + off) for a small second number."""
    minus_n, scale = _whole_power(builder, x, 1.0)
    return _scaled_power(builder, builder.fadd(builder.fadd(x, minus_n), off), scale)


def _whole_power(builder: ir.IRBuilder, x: ir.Value, factor: float) -> tuple[ir.Value, ir.Value]:
    """Return -n and 2^n for n = x · factor rounded.

    n is clamped to [-126, 127], the exponents of normal numbers, by a saturating fused operation
    at no cost; beyond that the rest grows instead and its power is 0, infinite or scaled. NaN: the
    saturated n is finite and the rest is NaN. A lower clamp would leave a larger rest near
    overflow, n rounded down a larger one everywhere.
    """
    # t = (x factor + 126) / 253, clamped to [0, 1]
    t = _fma(builder, x, factor / 253, ir.Constant(F32, 126 / 253), "rn.sat")
    # At 1.5 * 2^23 the spacing is 1, so this rounds to an integer; its low bits are n + 127.
    shifted = _fma(builder, t, 253.0, ir.Constant(F32, 12582913.0))
    # libNVVM reads LLVM 7, which has no fneg: subtract the other way round.
    minus_n = builder.fsub(ir.Constant(F32, 12582912.0 + 127), shifted)
    power = builder.bitcast(builder.shl(builder.bitcast(shifted, I32), ir.Constant(I32, 23)), F32)
    return minus_n, power


def _scaled_power(builder: ir.IRBuilder, r: ir.Value, power: ir.Value) -> ir.Value:
    """Return 2^r · power for |r| <= 1/2.

    Error: rounding r and the result costs less than 0.9 ulp; in the last half power of two before
    overflow r reaches 1 and that becomes 1.25 (`tests/targets/test_tiles.py`). The hardware's 2^r
    (PTX: relative error 2^-22.5) was seen to err by -2.06 to 1.77 ulp on an H200: raising r by a
    sixteenth ulp of 1 takes off what is too much. `tests/gpu/test_exp.py` measures every f32.
    """
    r = builder.fadd(r, ir.Constant(F32, 2.0**-27 / 0.6931471805599453))
    fraction = asm(builder, F32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [r])
    return builder.fmul(fraction, power)


def _rsqrt_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1/sqrt(x); at most 2 ulp (PTX: relative error 2^-22.9); 0 gives inf, negative NaN."""
    return asm(builder, F32, "rsqrt.approx.f32 $0, $1;", "=f,f", [x])


def libdevice(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Call libdevice's function `name` for the type of the first argument; at most 2 ulp."""
    kind = arguments[0].type
    symbol = f"__nv_{name}{'f' if kind == F32 else ''}"
    shape = ir.FunctionType(kind, [argument.type for argument in arguments])
    known = builder.module.globals.get(symbol)
    return builder.call(known or ir.Function(builder.module, shape, symbol), arguments)


def exp_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit e^x."""
    return _exp_f32(builder, x) if x.type == F32 else libdevice(builder, "exp", x)


def _exp2_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _exp2_f32(builder, x) if x.type == F32 else libdevice(builder, "exp2", x)


def _rsqrt_value(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return _rsqrt_f32(builder, x) if x.type == F32 else libdevice(builder, "rsqrt", x)


def extreme_value(
    builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value, *, signed: bool
) -> ir.Value:
    """Emit `max` or `min`: NaN if either argument is, -0 below +0."""
    if a.type == F32:
        return asm(builder, F32, f"{name}.NaN.f32 $0, $1, $2;", "=f,f,f", [a, b])
    if a.type == F64:
        number = asm(builder, F64, f"{name}.f64 $0, $1, $2;", "=d,d,d", [a, b])
        # There is no NaN-propagating form for f64; a + b is NaN where either is.
        either = builder.fcmp_unordered("uno", a, b)
        return builder.select(either, builder.fadd(a, b), number)
    compare = builder.icmp_signed if signed else builder.icmp_unsigned
    return builder.select(compare(">" if name == "max" else "<", a, b), a, b)


def on_floats(
    name: str,
    emit: Callable[[ir.IRBuilder, ir.Value], ir.Value],
    *,
    keeps_integers: bool = False,
) -> Word:
    """Return a function of one f32 or f64; with `keeps_integers` it returns integers as given."""

    def typed(kind: Kind) -> Typed:
        is_float = kind in FLOATS
        if not is_float and not keeps_integers:
            return None

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return emit(builder, values[0]) if is_float else values[0]

        return Signature(kind, (kind,)), generate

    return define_generic(name, 1, typed)


FLOATS = (FLOAT32, FLOAT64)

exp = on_floats("exp", exp_value)
short_exp = on_floats("short_exp", _short_exp_value)
short_tanh = on_floats("short_tanh", _short_tanh_value)
short_sigmoid = on_floats("short_sigmoid", _short_sigmoid_value)
sigmoid = on_floats("sigmoid", sigmoid_value)
exp2 = on_floats("exp2", _exp2_value)
rsqrt = on_floats("rsqrt", _rsqrt_value)


def _extreme(name: str) -> Word:
    def typed(left: Kind, right: Kind) -> Typed:
        if left != right:
            return None
        signed = left in FLOATS or left.signed

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return extreme_value(builder, name, *values, signed=signed)

        return Signature(left, (left, right)), generate

    return define_generic(f"{name}imum", 2, typed)


maximum = _extreme("max")
minimum = _extreme("min")


def _fused(a: Kind, b: Kind, c: Kind) -> Typed:
    if not a == b == c:
        return None
    kind, letter, code = (F32, "f", "f32") if a == FLOAT32 else (F64, "d", "f64")

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        operands = f"={letter},{letter},{letter},{letter}"
        return asm(builder, kind, f"fma.rn.{code} $0, $1, $2, $3;", operands, values)

    return Signature(a, (a, b, c)), generate


fma = define_generic("fma", 3, _fused)
"""a * b + c, rounded once."""
