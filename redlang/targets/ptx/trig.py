"""Sine and cosine of f32 on CUDA, for arguments of any size and without f64.

libdevice's have a loop and local memory for large arguments, which is much text where a thread
holds 64 elements. Here large arguments take some forty instructions more than others, in line.
"""

from __future__ import annotations

import math
import struct

from llvmlite import ir

from redlang.targets.kinds import F32, I32
from redlang.targets.ptx.elementary import polynomial
from redlang.targets.ptx.inline import asm, i32
from redlang.targets.turns import two_over_pi

_NEAR = 105615.0
"""The largest argument of which three parts of pi/2 are enough: n stays below 2^17."""
_LIMIT = struct.unpack("<I", struct.pack("<f", _NEAR))[0]
_ROUND = 12582912.0
"""1.5 · 2^23: a sum with it is rounded to an integer, which is in its low bits."""
_PARTS = (1.57079601287841796875, 3.1391647326017846e-7, 5.390302529957764e-15)
"""pi/2. What n times the first leaves of x is exact: below 1, and a multiple of 2^-23."""

# (sin(t) / t - 1) / t^2 and ((cos(t) - 1) / t^2 + 1/2) / t^2 in t^2 to pi^2 / 16: 2^-27.3, 2^-32.2
_SIN = (-0.16666655242443085, 0.008332110941410065, -0.00019505132513586432)
_COS = (0.041666653007268906, -0.001388765755109489, 2.446418147883378e-05)

_FIRST = 120
"""The biased exponent of which the first bit of `_WORDS` counts; for each more, the next one."""
_WORDS = (0, *(int(two_over_pi() * 2 ** (32 * k)) & 0xFFFFFFFF for k in range(1, 8)))
"""2/pi below a word of zeros."""
_HALF_PI = 0xC90FDAA2
"""2^31 · pi/2."""
_MAGNITUDE = 0x7FFFFFFF


def sine(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit the sine of an f32; at most 2 ulp."""
    bits = builder.bitcast(x, I32)
    turned = _circle(builder, builder.and_(bits, i32(_MAGNITUDE)), 0)
    sign = builder.and_(bits, i32(~_MAGNITUDE))
    return builder.bitcast(builder.xor(builder.bitcast(turned, I32), sign), F32)


def cosine(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit the cosine of an f32; at most 2 ulp."""
    return _circle(builder, builder.and_(builder.bitcast(x, I32), i32(_MAGNITUDE)), 1)


def _circle(builder: ir.IRBuilder, bits: ir.Value, quarter: int) -> ir.Value:
    """Emit the sine of x + quarter · pi/2 from the bits of x, which is not negative."""
    n, t = _reduced(builder, bits)
    n = builder.add(n, i32(quarter))
    z = builder.fmul(t, t)
    sine = builder.fma(polynomial(builder, z, _SIN), builder.fmul(z, t), t)
    cosine = builder.fma(polynomial(builder, z, (-0.5, *_COS)), z, _f32(1.0))
    odd = builder.trunc(n, ir.IntType(1))
    found = builder.bitcast(builder.select(odd, cosine, sine), I32)
    sign = builder.shl(builder.and_(n, i32(2)), i32(30))
    return builder.bitcast(builder.xor(found, sign), F32)


def _reduced(builder: ir.IRBuilder, bits: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit n modulo 4 and t with x = n pi/2 + t, |t| <= pi / 4; t is NaN where x is not finite."""
    x = builder.bitcast(bits, F32)
    rounded = builder.fma(x, _f32(2 / math.pi), _f32(_ROUND))
    n = builder.bitcast(rounded, I32)
    minus_n = builder.fsub(_f32(_ROUND), rounded)
    t = x
    for part in _PARTS:
        t = builder.fma(minus_n, _f32(part), t)
    pair = ir.LiteralStructType([I32, F32])
    # One statement, which the compiler cannot take apart: branches in 64 elements are not moved.
    found = asm(builder, pair, _FAR, "=&r,=&f,r,0,1", [bits, n, t])
    n, t = (builder.extract_value(found, number) for number in range(2))
    return n, t


def _far() -> str:
    """Return PTX that replaces n and t ($0, $1) of a large number with the bits $2.

    The number is m · 2^(e - 150) with a 24-bit integer m. Of 2/pi, bits of which m times one is a
    multiple of 4 do not count; of the 96 after them, m times the rest is below 2^-70. The product
    modulo 4 has two bits of a whole number; no f32 is nearer to a multiple of pi/2 than 2^-30.
    """
    words = "".join(f"mov.u32 w{k}, {word};" for k, word in enumerate(_WORDS[:4]))
    for first in range(1, len(_WORDS) - 3):
        moved = (f"@q mov.u32 w{k}, {_WORDS[first + k]};" for k in range(4))
        words += f"setp.eq.u32 q, h, {first};" + "".join(moved)
    return f"""{{
.reg .pred p, q; .reg .f32 f, g; .reg .b64 r;
.reg .b32 e, h, m, n, s, x, z, u<3>, w<4>;
setp.le.u32 p, $2, {_LIMIT};
@p bra near;
shr.u32 e, $2, 23; sub.u32 e, e, {_FIRST}; shr.u32 h, e, 5;
{words}
shf.l.wrap.b32 u0, w1, w0, e; shf.l.wrap.b32 u1, w2, w1, e; shf.l.wrap.b32 u2, w3, w2, e;
and.b32 m, $2, 0x7fffff; or.b32 m, m, 0x800000;
mul.hi.u32 h, m, u2;
mad.lo.cc.u32 x, m, u1, h;
madc.hi.u32 h, m, u1, 0;
mad.lo.u32 u0, m, u0, h;
add.u32 n, u0, 0x20000000; shr.u32 n, n, 30; shl.b32 s, n, 30; sub.u32 u0, u0, s;
shr.s32 s, u0, 31; xor.b32 u0, u0, s; xor.b32 x, x, s;
mov.b64 r, {{x, u0}}; clz.b64 z, r; shl.b64 r, r, z; mov.b64 {{x, u0}}, r;
mul.hi.u32 x, u0, {_HALF_PI}; cvt.rn.f32.u32 f, x;
sub.u32 z, {127 - 29}, z; shl.b32 z, z, 23; mov.b32 g, z; mul.rn.f32 f, f, g;
and.b32 s, s, {~_MAGNITUDE}; mov.b32 x, f; xor.b32 x, x, s; mov.b32 f, x;
mov.b32 g, $2; mov.u32 $0, n; fma.rn.f32 $1, g, 0f00000000, f;
near: }}"""


_FAR = _far()


def _f32(number: float) -> ir.Constant:
    return ir.Constant(F32, number)
