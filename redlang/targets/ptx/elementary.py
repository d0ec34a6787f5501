"""Element functions that Numba has not, drops NaN in, or is slow at.

Each states its largest error in units in the last place (ulp) against the exact value. Everything
else (`log`, `sin`, `tanh`, `erf`, ...) is libdevice's, through Numba's `math`.
`lg2.approx` is not here: near 1 it is off by more than 2 ulp.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from redlang.targets.numba_cuda import types
from redlang.targets.ptx.inline import (
    F32,
    F64,
    I32,
    Context,
    Intrinsic,
    NumbaType,
    Typed,
    Values,
    asm,
    define_generic,
)

_LOG2_E = 1.4426950408889634
_LOG2_E_HIGH = 1.44269502162933349609375
"""log2(e) rounded to f32; the rest is `_LOG2_E - _LOG2_E_HIGH`."""


def _fma(builder: ir.IRBuilder, a: ir.Value, b: float, c: ir.Value, mode: str = "rn") -> ir.Value:
    text = f"fma.{mode}.f32 $0, $1, $2, $3;"
    return asm(builder, F32, text, "=f,f,f,f", [a, ir.Constant(F32, b), c])


def _exp_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e^x as 2^n · 2^r with n = floor(x log2 e), r in [0, 1); at most 2 ulp, subnormals included.

    x log2 e is never rounded as a whole: one fused operation subtracts n from the product with the
    upper part of log2 e, another adds the lower part. n is clamped to [-126, 126] by a saturating
    fused operation at no cost; beyond that r grows instead and 2^r is 0, infinite or scaled.
    NaN: the saturated n is finite and r is NaN.
    """
    # t = (n + fraction + 126) / 252, clamped to [0, 1]
    t = _fma(builder, x, _LOG2_E / 252, ir.Constant(F32, 0.5), "rn.sat")
    # Adding 1.5 * 2^23 + 1 rounds down to an integer; the low bits are then n + 127.
    shifted = _fma(builder, t, 252.0, ir.Constant(F32, 12582913.0), "rm")
    n = builder.fsub(shifted, ir.Constant(F32, 12582912.0 + 127))
    r = _fma(builder, x, _LOG2_E_HIGH, builder.fneg(n))
    r = _fma(builder, x, _LOG2_E - _LOG2_E_HIGH, r)
    power = builder.bitcast(builder.shl(builder.bitcast(shifted, I32), ir.Constant(I32, 23)), F32)
    fraction = asm(builder, F32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [r])
    return builder.fmul(fraction, power)


def _exp2_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """2^x; at most 2 ulp (PTX: relative error 2^-22.5), subnormals included."""
    return asm(builder, F32, "ex2.approx.f32 $0, $1;", "=f,f", [x])


def _rsqrt_f32(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1/sqrt(x); at most 2 ulp (PTX: relative error 2^-22.9); 0 gives inf, negative NaN."""
    return asm(builder, F32, "rsqrt.approx.f32 $0, $1;", "=f,f", [x])


def _libdevice(name: str) -> Callable[[ir.IRBuilder, ir.Value], ir.Value]:
    def generate(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
        shape = ir.FunctionType(F64, [F64])
        module = builder.module
        known = module.globals.get(f"__nv_{name}")
        return builder.call(known or ir.Function(module, shape, f"__nv_{name}"), [x])

    return generate


def _unary(
    name: str,
    single: Callable[[ir.IRBuilder, ir.Value], ir.Value],
    double: Callable[[ir.IRBuilder, ir.Value], ir.Value],
) -> Intrinsic:
    """Return an element function of f32 or f64, by the type of its argument."""

    def typed(typing_context: Context, kind: NumbaType) -> Typed:
        if kind not in (types.float32, types.float64):
            return None
        chosen = single if kind == types.float32 else double

        def generate(
            context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
        ) -> Values:
            return chosen(builder, values[0])

        return kind(kind), generate

    return define_generic(name, 1, typed)


exp = _unary("exp", _exp_f32, _libdevice("exp"))
exp2 = _unary("exp2", _exp2_f32, _libdevice("exp2"))
rsqrt = _unary("rsqrt", _rsqrt_f32, _libdevice("rsqrt"))


def _extreme(name: str, ptx: str, integer: str) -> Intrinsic:
    """Return max or min: NaN if either argument is, -0 below +0."""

    def typed(typing_context: Context, left: NumbaType, right: NumbaType) -> Typed:
        if left != right:
            return None

        def generate(
            context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
        ) -> Values:
            a, b = values
            if left == types.float32:
                return asm(builder, F32, f"{ptx}.NaN.f32 $0, $1, $2;", "=f,f,f", [a, b])
            if left == types.float64:
                number = asm(builder, F64, f"{ptx}.f64 $0, $1, $2;", "=d,d,d", [a, b])
                # There is no NaN-propagating form for f64; a + b is NaN where either is.
                either = builder.fcmp_unordered("uno", a, b)
                return builder.select(either, builder.fadd(a, b), number)
            compare = builder.icmp_signed if left.signed else builder.icmp_unsigned
            return builder.select(compare(integer, a, b), a, b)

        return left(left, right), generate

    return define_generic(name, 2, typed)


maximum = _extreme("maximum", "max", ">")
minimum = _extreme("minimum", "min", "<")


def _fused(typing_context: Context, a: NumbaType, b: NumbaType, c: NumbaType) -> Typed:
    if not a == b == c:
        return None

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        kind, letter = (F32, "f") if a == types.float32 else (F64, "d")
        code = "f32" if a == types.float32 else "f64"
        operands = f"={letter},{letter},{letter},{letter}"
        return asm(builder, kind, f"fma.rn.{code} $0, $1, $2, $3;", operands, values)

    return a(a, b, c), generate


fma = define_generic("fma", 3, _fused)
"""a * b + c, rounded once."""
