"""Element types: from their bits to the compute type and back, without a branch.

Rounding is to nearest even, once, also from f64: a value is first rounded to odd in f32, which
keeps enough bits for the second rounding to be right (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", 2008). f16 uses the processor's conversion where it has one.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from redlang.targets import processor
from redlang.targets.llvm import F32, F64, HALF, I1, I8, I16, I32, I64, NumbaType, Value

STORED: dict[str, ir.Type] = {
    **dict.fromkeys(("bool", "i8", "u8", "f8e4m3", "f8e5m2"), I8),
    **dict.fromkeys(("i16", "u16", "f16", "bf16"), I16),
    **dict.fromkeys(("i32", "u32"), I32),
    **dict.fromkeys(("i64", "u64"), I64),
    "f32": F32,
    "f64": F64,
}
"""The LLVM type of an element in memory."""

COMPUTED: dict[str, NumbaType] = {
    **dict.fromkeys(("i8", "i16", "i32", "i64", "u8", "u16", "u32"), types.int64),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "f16", "bf16", "f32"), types.float32),
    "bool": types.boolean,
    "u64": types.uint64,
    "f64": types.float64,
}
"""The Numba type in which values of an element type are computed."""

# Bits of the fraction and bias of the exponent of the narrow floats with four or five bits of it.
_NARROW = {"f8e4m3": (3, 7), "f8e5m2": (2, 15), "f16": (10, 15)}
_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def decode(raw: Value, dtype: str) -> Value:
    """Return the value of an element as it lies in memory, in its compute type."""
    match dtype:
        case "f32" | "f64" | "i64":
            return raw
        case "u64":
            return Value(raw.builder, raw.raw, unsigned=True)
        case "bool":
            return raw.differs(0)
        case "bf16":
            return (raw.zero_extend(I32) << 16).from_bits()
        case "f16" if processor.converts_half():
            return raw.from_bits().to_float(F32)
        case "f16" | "f8e4m3" | "f8e5m2":
            return _decode_narrow(raw.zero_extend(I32), dtype)
        case _ if dtype.startswith("u"):
            return raw.zero_extend(I64)
        case _:
            return raw.sign_extend(I64)


def encode(value: Value, dtype: str) -> Value:
    """Round a value of a compute type to an element type; return it as it lies in memory."""
    stored = STORED[dtype]
    if dtype == "bool":
        return value.differs(0).zero_extend(I8) if value.type != I1 else value.zero_extend(I8)
    if dtype[0] in "iu":
        return _encode_integer(value, stored, signed=dtype[0] == "i")
    if dtype in ("f32", "f64"):
        return value.to_float(stored)
    if not value.is_float:
        value = value.to_float(F64)
    if dtype in _LARGEST:
        value = value.at_most(_LARGEST[dtype]).at_least(-_LARGEST[dtype])
    single = _round_to_odd(value) if value.type == F64 else value
    if dtype == "bf16":
        return _encode_bf16(single)
    if dtype == "f16" and processor.converts_half():
        return single.to_float(HALF).bits()
    return _encode_narrow(single, dtype).truncate(stored)


def cast(value: Value, dtype: str) -> Value:
    """Round a value of any compute type to an element type and return to its compute type."""
    return decode(encode(value, dtype), dtype)


def convert(value: Value, computed: NumbaType) -> Value:
    """Change the compute type, without the rounding of a cast."""
    if computed == types.boolean:
        return value if value.type == I1 else value.differs(0)
    if isinstance(computed, types.Float):
        return value.to_float(F64 if computed == types.float64 else F32)
    unsigned = computed == types.uint64
    raw = _encode_integer(value, I64, signed=not unsigned)
    return Value(raw.builder, raw.raw, unsigned=unsigned)


def _encode_integer(value: Value, stored: ir.IntType, *, signed: bool) -> Value:
    if value.is_float:
        return value.saturate(stored, signed=signed)
    if value.type == I1:
        return value.zero_extend(stored)
    return value if stored == I64 else value.truncate(stored)


def _round_to_odd(value: Value) -> Value:
    """Round f64 to f32 toward zero, with the last bit set where anything was lost."""
    nearest = value.to_float(F32)
    back = nearest.to_float(F64)
    bits = nearest.bits()
    truncated = (abs(back) > abs(value)).choose(bits - 1, bits)
    inexact = (back < value) | (back > value)
    return inexact.choose(truncated | 1, bits).from_bits()


def _encode_bf16(single: Value) -> Value:
    bits = single.bits()
    rounded = bits + (bits.shift_in_zeros(16) & 1) + 0x7FFF
    # A NaN whose payload lies in the lower half must not become infinity.
    quiet = bits | 0x400000
    return single.is_nan().choose(quiet, rounded).shift_in_zeros(16).truncate(I16)


def _decode_narrow(bits: Value, dtype: str) -> Value:
    fraction, bias = _NARROW[dtype]
    width = 16 if dtype == "f16" else 8
    magnitude = bits & (2 ** (width - 1) - 1)
    exponent_step = 127 - bias
    normal = (magnitude << (23 - fraction)) + (exponent_step << 23)
    # Below the smallest normal number the bits count multiples of the smallest one.
    tiny = (magnitude.to_float(F32) * 2.0 ** (1 - bias - fraction)).bits()
    result: Value = (magnitude < 2**fraction).choose(tiny, normal)
    if dtype == "f8e4m3":
        result = magnitude.equals(0x7F).choose(0x7FC00000, result)
    else:
        special = normal | 0x7F800000
        top = (2 ** (width - 1 - fraction) - 1) << fraction
        result = (magnitude < top).choose(result, special)
    sign = bits.shift_in_zeros(width - 1) << 31
    return (result | sign).from_bits()


def _encode_narrow(single: Value, dtype: str) -> Value:
    fraction, bias = _NARROW[dtype]
    width = 16 if dtype == "f16" else 8
    sign = single.bits().shift_in_zeros(31) << (width - 1)
    magnitude = abs(single)
    bits = magnitude.bits()
    dropped = 23 - fraction
    odd = bits.shift_in_zeros(dropped) & 1
    rounded = (bits + odd + (2 ** (dropped - 1) - 1)).shift_in_zeros(dropped)
    normal = rounded - ((127 - bias) << fraction)
    # Adding 2^23 units of the smallest number rounds to a multiple of it.
    unit = 2.0 ** (1 - bias - fraction)
    tiny = (magnitude + unit * 2.0**23).bits() & 0x7FFFFF
    result = (magnitude < 2.0 ** (1 - bias)).choose(tiny, normal)
    if dtype == "f8e4m3":
        not_a_number = 0x7F
    else:
        infinity = (2 ** (width - 1 - fraction) - 1) << fraction
        result = (magnitude < 2.0 ** (bias + 1)).choose(result, infinity)
        not_a_number = infinity | 2 ** (fraction - 1)
    return single.is_nan().choose(not_a_number, result) | sign
