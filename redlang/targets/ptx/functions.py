"""Element functions of compute types: what `codegen.scalars` calls, on CUDA.

A float function works on f32 or f64, whichever it is given, and never turns one into the other.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from redlang.targets.kinds import BOOL, F32, Kind, Signature
from redlang.targets.ptx import powers
from redlang.targets.ptx.elementary import (
    FLOATS,
    extreme_value,
    libdevice,
    near_reciprocal,
    on_floats,
)
from redlang.targets.ptx.inline import Typed, Values, Word, define_generic
from redlang.targets.ptx.trig import cosine, sine

Emit = Callable[..., ir.Value]


def _library(word: str, name: str, *, keeps_integers: bool = False) -> Word:
    def emit(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
        return libdevice(builder, name, x)

    return on_floats(word, emit, keeps_integers=keeps_integers)


log, log2, sqrt = _library("log", "log"), _library("log2", "log2"), _library("sqrt", "sqrt")
tanh, erf = _library("tanh", "tanh"), _library("erf", "erf")
sin = on_floats("sin", lambda b, x: sine(b, x) if x.type == F32 else libdevice(b, "sin", x))
cos = on_floats("cos", lambda b, x: cosine(b, x) if x.type == F32 else libdevice(b, "cos", x))
floor = _library("floor", "floor", keeps_integers=True)
ceil = _library("ceil", "ceil", keeps_integers=True)
round_even = _library("round_even", "rint", keeps_integers=True)


def _same(name: str, arity: int, emit: Emit) -> Word:
    """Return a function whose arguments and result have one type: `emit(builder, type, ...)`."""

    def typed(*kinds: Kind) -> Typed:
        kind = kinds[-1]

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return emit(builder, kind, *values)

        return Signature(kind, tuple([kind] * arity)), generate

    return define_generic(name, arity, typed)


def _signed(kind: Kind) -> bool:
    return kind.signed


def _absolute(builder: ir.IRBuilder, kind: Kind, x: ir.Value) -> ir.Value:
    if kind in FLOATS:
        return libdevice(builder, "fabs", x)
    if not _signed(kind):
        return x
    return builder.select(builder.icmp_signed("<", x, ir.Constant(x.type, 0)), builder.neg(x), x)


def _sign(builder: ir.IRBuilder, kind: Kind, x: ir.Value) -> ir.Value:
    """Emit -1, 0 or 1; NaN stays."""
    zero, one, minus = (ir.Constant(x.type, number) for number in (0, 1, -1))
    if kind in FLOATS:
        above, below = (builder.fcmp_ordered(sign, x, zero) for sign in (">", "<"))
        rest = builder.select(builder.fcmp_unordered("uno", x, x), x, zero)
    else:
        compare = builder.icmp_signed if _signed(kind) else builder.icmp_unsigned
        above, below = (compare(sign, x, zero) for sign in (">", "<"))
        rest = zero
    if not _signed(kind) and kind not in FLOATS:
        return builder.select(above, one, zero)
    return builder.select(above, one, builder.select(below, minus, rest))


def _clip(
    builder: ir.IRBuilder, kind: Kind, x: ir.Value, low: ir.Value, high: ir.Value
) -> ir.Value:
    signed = _signed(kind)
    raised = extreme_value(builder, "max", x, low, signed=signed)
    return extreme_value(builder, "min", raised, high, signed=signed)


absolute = _same("absolute", 1, _absolute)
sign = _same("sign", 1, _sign)
clip = _same("clip", 3, _clip)
logical_and = _same("logical_and", 2, lambda builder, kind, x, y: builder.and_(x, y))
logical_or = _same("logical_or", 2, lambda builder, kind, x, y: builder.or_(x, y))
logical_xor = _same("logical_xor", 2, lambda builder, kind, x, y: builder.xor(x, y))
logical_not = _same("logical_not", 1, lambda builder, kind, x: builder.not_(x))
# Powers of integers are products by the time that text is written.
power = _same("power", 2, lambda builder, kind, x, y: powers.power(builder, x, y))


def _select(test: Kind, yes: Kind, no: Kind) -> Typed:
    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return builder.select(*values)

    return Signature(yes, (BOOL, yes, yes)), generate


select = define_generic("select", 3, _select)
"""`select(test, yes, no)`, without a branch."""


def _test(name: str, emit: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Word:
    def typed(kind: Kind) -> Typed:
        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return emit(builder, values[0])

        return Signature(BOOL, (kind,)), generate

    return define_generic(name, 1, typed)


def _is_finite(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    infinity = ir.Constant(x.type, float("inf"))
    return builder.fcmp_ordered("<", libdevice(builder, "fabs", x), infinity)


is_nan = _test("is_nan", lambda builder, x: builder.fcmp_unordered("uno", x, x))
is_finite = _test("is_finite", _is_finite)


def _integer_parts(
    builder: ir.IRBuilder, kind: Kind, a: ir.Value, b: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Emit quotient and remainder rounded down; both are 0 for a divisor 0."""
    zero, one = ir.Constant(a.type, 0), ir.Constant(a.type, 1)
    none = builder.icmp_unsigned("==", b, zero)
    divisor = builder.select(none, one, b)
    if not _signed(kind):
        quotient, rest = builder.udiv(a, divisor), builder.urem(a, divisor)
    else:
        quotient, rest = builder.sdiv(a, divisor), builder.srem(a, divisor)
        apart = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        down = builder.and_(apart, builder.icmp_unsigned("!=", rest, zero))
        quotient = builder.sub(quotient, builder.zext(down, a.type))
        rest = builder.select(down, builder.add(rest, divisor), rest)
    return builder.select(none, zero, quotient), builder.select(none, zero, rest)


def _modulo(builder: ir.IRBuilder, kind: Kind, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit the remainder with the divisor's sign, a zero too."""
    if kind not in FLOATS:
        return _integer_parts(builder, kind, a, b)[1]
    zero = ir.Constant(a.type, 0.0)
    rest = libdevice(builder, "fmod", a, b)
    negative = (builder.fcmp_ordered("<", x, zero) for x in (rest, b))
    moved = builder.select(builder.xor(*negative), builder.fadd(rest, b), rest)
    signed_zero = libdevice(builder, "copysign", zero, b)
    return builder.select(builder.fcmp_ordered("==", rest, zero), signed_zero, moved)


def _floor_divide(builder: ir.IRBuilder, kind: Kind, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit the quotient rounded down, from the exact remainder; by 0.0 as a division."""
    if kind not in FLOATS:
        return _integer_parts(builder, kind, a, b)[0]
    zero, half, one = (ir.Constant(a.type, number) for number in (0.0, 0.5, 1.0))
    plain = builder.fdiv(a, b)
    exact = builder.fdiv(builder.fsub(a, _modulo(builder, kind, a, b)), b)
    down = libdevice(builder, "floor", exact)
    # The division above may round across an integer.
    short = builder.fcmp_ordered(">", builder.fsub(exact, down), half)
    down = builder.select(short, builder.fadd(down, one), down)
    tiny = libdevice(builder, "copysign", zero, plain)
    down = builder.select(builder.fcmp_ordered("==", exact, zero), tiny, down)
    return builder.select(builder.fcmp_ordered("==", b, zero), plain, down)


modulo = _same("modulo", 2, _modulo)
floor_divide = _same("floor_divide", 2, _floor_divide)


def _reciprocal_parts(builder: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit r and s with x * r * s = 1 up to rounding, such that a * r is within a factor 2 of a.

    Then a * r * s overflows and underflows only where a / x does, for finite x; zeros, infinities
    and NaN of x give what the division gives.
    """
    assert x.type == F32, "f64 divides"
    from_bits = builder.bitcast(x, ir.IntType(32))
    whole = from_bits.type
    field = builder.and_(from_bits, ir.Constant(whole, 0x7F800000))
    # 2^-(e - 127) has the exponent field 254 - e; clamped, so that it is a normal number.
    flipped = builder.sub(ir.Constant(whole, 254 << 23), field)
    least = ir.Constant(whole, 1 << 23)
    scale_bits = builder.select(builder.icmp_signed("<", flipped, least), least, flipped)
    scale = builder.bitcast(scale_bits, F32)
    return _near_one(builder, builder.fmul(x, scale)), scale


def _near_one(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit 1/x, rounded as divisions are, for x from 2^-22 to 4, and 0, infinity and NaN.

    It is the compiler's own short way, without its call for other numbers: products of the tensor
    core may be in flight.
    """
    near = near_reciprocal(builder, x)
    one = ir.Constant(F32, 1.0)
    off = libdevice(builder, "fma", builder.fsub(ir.Constant(F32, -0.0), x), near, one)
    # 0 times infinity: the first answer is exact.
    exact = builder.fcmp_unordered("uno", off, off)
    return builder.select(exact, near, libdevice(builder, "fma", near, off, near))


reciprocal = on_floats("reciprocal", lambda builder, x: _reciprocal_parts(builder, x)[0])
"""1/x for a divisor that many values share, scaled to [1/2, 1]: multiply by `scale_of` too."""

scale_of = on_floats("scale_of", lambda builder, x: _reciprocal_parts(builder, x)[1])
"""The power of two that `reciprocal` leaves out."""
