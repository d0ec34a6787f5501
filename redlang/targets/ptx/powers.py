"""x^y in f32 as 2^(y log2 |x|), the logarithm in two numbers: straight code, half of libdevice's.

What follows from x alone is the same for all elements with one x, and computed once.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import F32, I32
from redlang.targets.ptx.elementary import exp2_of_two, libdevice
from redlang.targets.ptx.inline import asm

_SCALE = 24
"""Powers of two that subnormal numbers are raised by."""
_ROOT_HALF = 0x3F3504F3
"""The bits of the square root of a half, where mantissas begin."""
_EXPONENT = -0x800000
"""The bits of a sign and an exponent."""
_SERIES = (0.20000072, 0.14274908, 0.1167056)
"""atanh(q) = q + q^3 (1/3 + u (s0 + u (s1 + u s2))), u = q^2 <= 0.0297, within 2^-34 of itself."""
_THIRD = 0.3333333432674408
_SLOPE = 2.885390043258667
"""1/3 and 2 / log(2) rounded to f32."""
_LARGEST = 2.0**20
"""Exponents beyond it have no second number: their powers are 0 or infinite."""


def _number(value: float) -> ir.Constant:
    return ir.Constant(F32, value)


def _rounded(builder: ir.IRBuilder, x: ir.Value, factor: float) -> ir.Value:
    """Emit a product that no compiler joins with a sum: what it is off by is counted apart."""
    return builder.fma(x, _number(factor), _number(-0.0))


def _minus(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.fsub(_number(-0.0), x)


def _logarithm(builder: ir.IRBuilder, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return log2 of a magnitude as a number and what it is off by, together within 2^-32.

    |x| = 2^n m with m between the roots of 1/2 and 2; log(m) = 2 atanh(q), q = (m - 1) / (m + 1).
    """
    tiny = builder.fcmp_ordered("<", size, _number(2.0**-126))
    raised = builder.fmul(size, _number(2.0**_SCALE))
    bits = builder.bitcast(builder.select(tiny, raised, size), I32)
    above = builder.and_(
        builder.sub(bits, ir.Constant(I32, _ROOT_HALF)), ir.Constant(I32, _EXPONENT)
    )
    m = builder.bitcast(builder.sub(bits, above), F32)
    n = builder.sitofp(builder.ashr(above, ir.Constant(I32, 23)), F32)
    n = builder.fadd(n, builder.select(tiny, _number(-_SCALE), _number(0.0)))
    s = builder.fsub(m, _number(1.0))
    t = builder.fadd(m, _number(1.0))
    q = libdevice(builder, "fast_fdivide", s, t)
    # s - 2 q is exact, and what is left of s - q (s + 2) is rounded once.
    left = builder.fma(q, _minus(builder, s), builder.fma(q, _number(-2.0), s))
    low = libdevice(builder, "fast_fdivide", left, t)
    u = builder.fmul(q, q)
    cube = builder.fmul(q, u)
    rest = builder.fma(q, u, _minus(builder, cube))
    rest = builder.fma(q, builder.fma(q, q, _minus(builder, u)), rest)
    rest = builder.fma(builder.fmul(_number(3.0), u), low, rest)
    third = _rounded(builder, cube, _THIRD)
    further = builder.fma(cube, _number(_THIRD), _minus(builder, third))
    further = builder.fma(cube, _number(1 / 3 - _THIRD), further)
    further = builder.fma(rest, _number(_THIRD), further)
    first, second, last = map(_number, _SERIES)
    series = builder.fma(builder.fma(last, u, second), u, first)
    further = builder.fma(builder.fmul(cube, u), series, further)
    a = builder.fadd(q, third)
    b = builder.fadd(builder.fsub(q, a), third)
    b = builder.fadd(b, builder.fadd(low, further))
    high = _rounded(builder, a, _SLOPE)
    off = builder.fma(a, _number(_SLOPE), _minus(builder, high))
    off = builder.fma(a, _number(2.8853900817779268 - _SLOPE), off)
    off = builder.fma(b, _number(_SLOPE), off)
    whole = builder.fadd(n, high)
    off = builder.fadd(builder.fadd(builder.fsub(n, whole), high), off)
    found = builder.fadd(whole, off)
    off = builder.fadd(builder.fsub(whole, found), off)
    zero = builder.fcmp_ordered("==", size, _number(0.0))
    finite = builder.fcmp_ordered("<", size, _number(float("inf")))
    found = builder.select(finite, found, size)
    found = builder.select(zero, _number(float("-inf")), found)
    off = builder.select(builder.and_(finite, builder.not_(zero)), off, _number(0.0))
    return found, off


def power(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emit x^y, as C has it; off by at most 2.3 ulp."""
    if x.type != F32:
        return libdevice(builder, "pow", x, y)
    one, zero = _number(1.0), _number(0.0)
    size = libdevice(builder, "fabs", x)
    high, low = _logarithm(builder, size)
    # Not to be joined with what is added to it: that counts on its rounding.
    exponent = asm(builder, F32, "mul.rn.f32 $0, $1, $2;", "=f,f,f", [y, high])
    off = builder.fma(y, high, _minus(builder, exponent))
    off = builder.fma(y, low, off)
    near = builder.fcmp_ordered("<", libdevice(builder, "fabs", exponent), _number(_LARGEST))
    found = exp2_of_two(builder, exponent, builder.select(near, off, zero))
    # 0 times an infinity is no exponent.
    unit = builder.and_(builder.fcmp_ordered("==", size, one), builder.fcmp_ordered("ord", y, y))
    found = builder.select(unit, one, found)
    whole = builder.fcmp_ordered("==", libdevice(builder, "floor", y), y)
    half = builder.fmul(y, _number(0.5))
    odd = builder.and_(whole, builder.fcmp_ordered("!=", libdevice(builder, "floor", half), half))
    signed = builder.icmp_signed("<", builder.bitcast(x, I32), ir.Constant(I32, 0))
    found = builder.select(builder.and_(signed, odd), _minus(builder, found), found)
    below = builder.and_(
        builder.fcmp_ordered("<", x, zero),
        builder.fcmp_ordered(">", x, _number(float("-inf"))),
    )
    undefined = builder.and_(below, builder.not_(whole))
    found = builder.select(undefined, _number(float("nan")), found)
    certain = builder.or_(builder.fcmp_ordered("==", y, zero), builder.fcmp_ordered("==", x, one))
    return builder.select(certain, one, found)
