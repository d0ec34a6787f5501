"""Floats as integers of the same order, so that a value and its index make one sortable key.

The order is that of arg-reductions: NaN above every number, -0 equal to +0. No number has rank 0.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import F32, I16, I32, I64
from redlang.targets.ptx.inline import Values, Word, asm, define


def packed_key(dtype: str) -> Word:
    """Return a function from an f32 and an index below 2^16 to one 32-bit key.

    The f32 is a value that `dtype`, f16 or bf16, holds exactly; its rank is the upper half of the
    key. Smaller indices make larger keys.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        # The packing form runs at full rate, the single one at a quarter of it. NaN becomes the
        # positive one with all other bits set.
        text = f"cvt.rn.{dtype}x2.f32 $0, $1, $2;"
        x = _without_minus_zero(builder, values[0])
        bits = asm(builder, I32, text, "=r,f,f", [x, ir.Constant(F32, 0.0)])
        sign = builder.ashr(bits, ir.Constant(I32, 31))
        flip = builder.and_(sign, ir.Constant(I32, 0x7FFF0000))
        # Turning the sign is adding it, and so is part of what the index is taken from.
        low = builder.sub(ir.Constant(I32, 0x8000FFFF), values[1])
        return builder.add(builder.xor(bits, flip), low)

    return define(f"packed_key_{dtype}", "u32", ("f32", "u32"), generate)


def _rank_32(builder: ir.IRBuilder, values: Values) -> Values:
    bits = builder.bitcast(_without_minus_zero(builder, values[0]), I32)
    sign = builder.ashr(bits, ir.Constant(I32, 31))
    return builder.xor(bits, builder.or_(sign, ir.Constant(I32, 0x80000000)))


rank_f32 = define("rank_f32", "u32", ("f32",), _rank_32)
"""The rank of any f32 in 32 bits."""


def _same(builder: ir.IRBuilder, values: Values) -> Values:
    one, other = (builder.bitcast(_without_minus_zero(builder, x), I32) for x in values)
    return builder.icmp_unsigned("==", one, other)


same_f32 = define("same_f32", "bool", ("f32", "f32"), _same)
"""Whether two numbers rank alike: -0 and +0 do, and one NaN and another."""


def _without_minus_zero(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # Under round-to-nearest -0 + 0 is +0; written as PTX, because compilers know better. A NaN
    # becomes 0x7fffffff, whatever it was (PTX ISA, "add"): it ranks above every number.
    return asm(builder, F32, "add.f32 $0, $1, 0f00000000;", "=f,f", [x])


def unrank_16(dtype: str) -> Word:
    """Return a function from the upper half of a key to the f32; that of NaN gives a NaN."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
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


def _unrank_32(builder: ir.IRBuilder, values: Values) -> Values:
    (rank,) = values
    # The rank of a number with the upper bit set is positive.
    sign = builder.ashr(builder.not_(rank), ir.Constant(I32, 31))
    flip = builder.or_(sign, ir.Constant(I32, 0x80000000))
    return builder.bitcast(builder.xor(rank, flip), F32)


unrank_f32 = define("unrank_f32", "f32", ("u32",), _unrank_32)
"""The inverse of `rank_f32`; the rank of NaN gives a NaN."""


def _upper_half(builder: ir.IRBuilder, values: Values) -> Values:
    return builder.lshr(values[0], ir.Constant(I32, 16))


def _lower_half(builder: ir.IRBuilder, values: Values) -> Values:
    low = builder.and_(values[0], ir.Constant(I32, 0xFFFF))
    return builder.sub(ir.Constant(I32, 0xFFFF), low)


upper_half = define("upper_half", "u32", ("u32",), _upper_half)
"""The rank in a packed key."""

lower_half = define("lower_half", "u32", ("u32",), _lower_half)
"""The index in a packed key."""


def _joined_key(builder: ir.IRBuilder, values: Values) -> Values:
    rank, index = (builder.zext(value, I64) for value in values)
    upper = builder.shl(rank, ir.Constant(I64, 32))
    return builder.or_(upper, builder.sub(ir.Constant(I64, 0xFFFFFFFF), index))


joined_key = define("joined_key", "u64", ("u32", "u32"), _joined_key)
"""A rank and an index below 2^32 as one key: smaller indices make larger keys."""


def _upper_key(builder: ir.IRBuilder, values: Values) -> Values:
    return builder.trunc(builder.lshr(values[0], ir.Constant(I64, 32)), I32)


def _lower_key(builder: ir.IRBuilder, values: Values) -> Values:
    low = builder.trunc(values[0], I32)
    return builder.sub(ir.Constant(I32, 0xFFFFFFFF), low)


upper_key = define("upper_key", "u32", ("u64",), _upper_key)
"""The rank in a joined key."""

lower_key = define("lower_key", "u32", ("u64",), _lower_key)
"""The index in a joined key."""

packed_key_f16, packed_key_bf16 = packed_key("f16"), packed_key("bf16")
unrank_f16, unrank_bf16 = unrank_16("f16"), unrank_16("bf16")
