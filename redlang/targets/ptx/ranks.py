"""Floats as integers of the same order, so that a value and its index make one sortable key.

The order is that of arg-reductions: NaN above every number, -0 equal to +0. No number has rank 0.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.ptx.inline import (
    F32,
    I16,
    I32,
    I64,
    Context,
    Intrinsic,
    NumbaType,
    Values,
    asm,
    define,
)


def rank_16(dtype: str) -> Intrinsic:
    """Return a function from an f32 that `dtype`, f16 or bf16, holds exactly to 16 bits (u32)."""

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        x = _without_minus_zero(builder, values[0])
        if dtype == "bf16":
            bits = builder.lshr(builder.bitcast(x, I32), ir.Constant(I32, 16))
        else:
            # The packing form runs at full rate, the single one at a quarter of it.
            zero = ir.Constant(F32, 0.0)
            bits = asm(builder, I32, "cvt.rn.f16x2.f32 $0, $1, $2;", "=r,f,f", [zero, x])
        sign = builder.and_(bits, ir.Constant(I32, 0x8000))
        flip = builder.select(
            builder.icmp_unsigned("!=", sign, ir.Constant(I32, 0)),
            ir.Constant(I32, 0xFFFF),
            ir.Constant(I32, 0x8000),
        )
        return _nan_above(builder, values[0], builder.xor(bits, flip), 0xFFFF)

    return define(f"rank_{dtype}", "u32", ("f32",), generate)


def _rank_32(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    bits = builder.bitcast(_without_minus_zero(builder, values[0]), I32)
    sign = builder.ashr(bits, ir.Constant(I32, 31))
    flip = builder.or_(sign, ir.Constant(I32, 0x80000000))
    return _nan_above(builder, values[0], builder.xor(bits, flip), 0xFFFFFFFF)


rank_f32 = define("rank_f32", "u32", ("f32",), _rank_32)
"""The rank of any f32 in 32 bits."""


def _without_minus_zero(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # Under round-to-nearest -0 + 0 is +0; written as PTX, because compilers know better.
    return asm(builder, F32, "add.f32 $0, $1, 0f00000000;", "=f,f", [x])


def _nan_above(builder: ir.IRBuilder, x: ir.Value, rank: ir.Value, top: int) -> ir.Value:
    return builder.select(builder.fcmp_unordered("uno", x, x), ir.Constant(I32, top), rank)


def unrank_16(dtype: str) -> Intrinsic:
    """Return the inverse of `rank_16`; the rank of NaN gives a NaN."""

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        (rank,) = values
        upper = builder.and_(rank, ir.Constant(I32, 0x8000))
        flip = builder.select(
            builder.icmp_unsigned("!=", upper, ir.Constant(I32, 0)),
            ir.Constant(I32, 0x8000),
            ir.Constant(I32, 0xFFFF),
        )
        bits = builder.xor(rank, flip)
        if dtype == "bf16":
            return builder.bitcast(builder.shl(bits, ir.Constant(I32, 16)), F32)
        half = builder.trunc(bits, I16)
        return asm(builder, F32, "cvt.f32.f16 $0, $1;", "=f,h", [half])

    return define(f"unrank_{dtype}", "f32", ("u32",), generate)


def _unrank_32(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    (rank,) = values
    # The rank of a number with the upper bit set is positive.
    sign = builder.ashr(builder.not_(rank), ir.Constant(I32, 31))
    flip = builder.or_(sign, ir.Constant(I32, 0x80000000))
    return builder.bitcast(builder.xor(rank, flip), F32)


unrank_f32 = define("unrank_f32", "f32", ("u32",), _unrank_32)
"""The inverse of `rank_f32`; the rank of NaN gives a NaN."""


def _packed_key(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    rank, index = values
    upper = builder.shl(rank, ir.Constant(I32, 16))
    return builder.or_(upper, builder.sub(ir.Constant(I32, 0xFFFF), index))


packed_key = define("packed_key", "u32", ("u32", "u32"), _packed_key)
"""A rank and an index below 2^16 as one key: smaller indices make larger keys."""


def _upper_half(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    return builder.lshr(values[0], ir.Constant(I32, 16))


def _lower_half(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    low = builder.and_(values[0], ir.Constant(I32, 0xFFFF))
    return builder.sub(ir.Constant(I32, 0xFFFF), low)


upper_half = define("upper_half", "u32", ("u32",), _upper_half)
"""The rank in a packed key."""

lower_half = define("lower_half", "u32", ("u32",), _lower_half)
"""The index in a packed key."""


def _joined_key(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    rank, index = (builder.zext(value, I64) for value in values)
    upper = builder.shl(rank, ir.Constant(I64, 32))
    return builder.or_(upper, builder.sub(ir.Constant(I64, 0xFFFFFFFF), index))


joined_key = define("joined_key", "u64", ("u32", "u32"), _joined_key)
"""A rank and an index below 2^32 as one key: smaller indices make larger keys."""


def _upper_key(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    return builder.trunc(builder.lshr(values[0], ir.Constant(I64, 32)), I32)


def _lower_key(
    context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
) -> Values:
    low = builder.trunc(values[0], I32)
    return builder.sub(ir.Constant(I32, 0xFFFFFFFF), low)


upper_key = define("upper_key", "u32", ("u64",), _upper_key)
"""The rank in a joined key."""

lower_key = define("lower_key", "u32", ("u64",), _lower_key)
"""The index in a joined key."""

rank_f16, rank_bf16 = rank_16("f16"), rank_16("bf16")
unrank_f16, unrank_bf16 = unrank_16("f16"), unrank_16("bf16")
