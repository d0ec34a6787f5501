"""Storage types ↔ compute types, on the registers that memory instructions move.

Memory is moved in 32-bit registers (or smaller for narrow accesses). `decode` takes a register
apart into elements of the compute type, `encode` rounds elements and packs them. Narrow floats
round to nearest even; f16 and bf16 overflow to infinity, f8 saturates, NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.ir.types import DTYPES
from redlang.targets.kinds import F32, F64, I8, I16, I32, I64
from redlang.targets.ptx.inline import Values, Word, asm, define

STORAGE_BITS = {name: max(8, dtype.bits) for name, dtype in DTYPES.items()}

COMPUTE_CODES = {
    name: {"bool": "bool", "int": "i64", "uint": "u64" if name == "u64" else "i64"}.get(
        dtype.kind, "f64" if name == "f64" else "f32"
    )
    for name, dtype in DTYPES.items()
}

_PAIR = ir.LiteralStructType([F32, F32])


def decode(builder: ir.IRBuilder, dtype: str, bits: ir.Value, native_f8: bool) -> list[ir.Value]:
    """Return the elements held in a register of 8, 16, 32 or 64 bits, lowest address first."""
    width = bits.type.width
    size = STORAGE_BITS[dtype]
    if dtype in ("f16", "bf16") and width >= 32:
        halves = _split(builder, bits, 32)
        return [element for half in halves for element in _decode_pair(builder, dtype, half)]
    if dtype.startswith("f8") and native_f8 and width >= 16:
        pairs = _split(builder, bits, 16)
        return [element for pair in pairs for element in _decode_f8_pair(builder, dtype, pair)]
    return [_decode_one(builder, dtype, part, native_f8) for part in _split(builder, bits, size)]


def encode(
    builder: ir.IRBuilder, dtype: str, elements: Sequence[ir.Value], native_f8: bool
) -> ir.Value:
    """Round elements to `dtype` and pack them into one register of 8 to 64 bits."""
    if dtype in ("f16", "bf16") and len(elements) % 2 == 0:
        packed = [_encode_pair(builder, dtype, elements[i : i + 2]) for i in _evens(elements)]
    elif dtype.startswith("f8") and native_f8 and len(elements) % 2 == 0:
        packed = [_encode_f8_pair(builder, dtype, elements[i : i + 2]) for i in _evens(elements)]
    else:
        packed = [_encode_one(builder, dtype, element, native_f8) for element in elements]
    return _join(builder, packed)


def _evens(elements: Sequence[ir.Value]) -> range:
    return range(0, len(elements), 2)


def _split(builder: ir.IRBuilder, bits: ir.Value, size: int) -> list[ir.Value]:
    """Cut a register into pieces of `size` bits, lowest first."""
    width = bits.type.width
    if width == size:
        return [bits]
    piece = ir.IntType(size)
    return [
        builder.trunc(builder.lshr(bits, ir.Constant(bits.type, shift)), piece)
        for shift in range(0, width, size)
    ]


def _join(builder: ir.IRBuilder, pieces: Sequence[ir.Value]) -> ir.Value:
    if len(pieces) == 1:
        return pieces[0]
    size = pieces[0].type.width
    whole = ir.IntType(size * len(pieces))
    total = builder.zext(pieces[0], whole)
    for number, piece in enumerate(pieces[1:], 1):
        shifted = builder.shl(builder.zext(piece, whole), ir.Constant(whole, size * number))
        total = builder.or_(total, shifted)
    return total


def _decode_pair(builder: ir.IRBuilder, dtype: str, bits: ir.Value) -> list[ir.Value]:
    if dtype == "bf16":
        # A bf16 is the upper half of an f32.
        low = builder.shl(bits, ir.Constant(I32, 16))
        high = builder.and_(bits, ir.Constant(I32, 0xFFFF0000))
        return [builder.bitcast(low, F32), builder.bitcast(high, F32)]
    text = "{.reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h;}"
    both = asm(builder, _PAIR, text, "=f,=f,r", [bits])
    return [builder.extract_value(both, 0), builder.extract_value(both, 1)]


def _encode_pair(builder: ir.IRBuilder, dtype: str, pair: Sequence[ir.Value]) -> ir.Value:
    low, high = pair
    kind = "bf16x2" if dtype == "bf16" else "f16x2"
    return asm(builder, I32, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", [high, low])


def _decode_f8_pair(builder: ir.IRBuilder, dtype: str, bits: ir.Value) -> list[ir.Value]:
    # Every f8 is an f16 exactly, so going through f16 rounds nothing.
    text = f"cvt.rn.f16x2.{_f8(dtype)}x2 $0, $1;"
    return _decode_pair(builder, "f16", asm(builder, I32, text, "=r,h", [bits]))


def _encode_f8_pair(builder: ir.IRBuilder, dtype: str, pair: Sequence[ir.Value]) -> ir.Value:
    low, high = pair
    text = f"cvt.rn.satfinite.{_f8(dtype)}x2.f32 $0, $1, $2;"
    return asm(builder, I16, text, "=h,f,f", [high, low])


def _f8(dtype: str) -> str:
    return dtype.removeprefix("f8")


def _decode_one(builder: ir.IRBuilder, dtype: str, bits: ir.Value, native_f8: bool) -> ir.Value:
    match dtype:
        case "f32":
            return builder.bitcast(bits, F32)
        case "f64":
            return builder.bitcast(bits, F64)
        case "f16":
            return asm(builder, F32, "cvt.f32.f16 $0, $1;", "=f,h", [bits])
        case "bf16":
            return _decode_pair(builder, "bf16", builder.zext(bits, I32))[0]
        case "bool":
            return builder.icmp_unsigned("!=", bits, ir.Constant(I8, 0))
        case "f8e4m3" | "f8e5m2":
            if native_f8:
                return _decode_f8_pair(builder, dtype, builder.zext(bits, I16))[0]
            return _decode_f8(builder, dtype, bits)
        case "i64" | "u64":
            return bits
        case _:
            extend = builder.zext if DTYPES[dtype].kind == "uint" else builder.sext
            return extend(bits, I64)


def _encode_one(builder: ir.IRBuilder, dtype: str, value: ir.Value, native_f8: bool) -> ir.Value:
    match dtype:
        case "f32":
            return builder.bitcast(value, I32)
        case "f64":
            return builder.bitcast(value, I64)
        case "f16" | "bf16":
            return asm(builder, I16, f"cvt.rn.{dtype}.f32 $0, $1;", "=h,f", [value])
        case "bool":
            return builder.zext(value, I8)
        case "f8e4m3" | "f8e5m2":
            if native_f8:
                zero = ir.Constant(F32, 0.0)
                return builder.trunc(_encode_f8_pair(builder, dtype, [value, zero]), I8)
            return _encode_f8(builder, dtype, value)
        case _:
            return builder.trunc(value, ir.IntType(DTYPES[dtype].bits))


def _decode_f8(builder: ir.IRBuilder, dtype: str, bits: ir.Value) -> ir.Value:
    """Decode an f8 without `cvt` (before compute capability 8.9), by way of f16."""
    wide = builder.zext(bits, I16)
    if dtype == "f8e5m2":
        half = builder.shl(wide, ir.Constant(I16, 8))
        return asm(builder, F32, "cvt.f32.f16 $0, $1;", "=f,h", [half])
    sign = builder.shl(builder.and_(wide, ir.Constant(I16, 0x80)), ir.Constant(I16, 8))
    magnitude = builder.and_(wide, ir.Constant(I16, 0x7F))
    half = builder.or_(sign, builder.shl(magnitude, ir.Constant(I16, 7)))
    small = asm(builder, F32, "cvt.f32.f16 $0, $1;", "=f,h", [half])
    # The exponents differ in bias by 8; f16 represents every scaled value, subnormals included.
    value = builder.fmul(small, ir.Constant(F32, 256.0))
    is_nan = builder.icmp_unsigned("==", magnitude, ir.Constant(I16, 0x7F))
    return builder.select(is_nan, ir.Constant(F32, float("nan")), value)


_F8_FORMATS = {"f8e4m3": (3, 7, 0x7E), "f8e5m2": (2, 15, 0x7B)}
"""Mantissa bits, exponent bias and the bits of the largest finite number."""


def _encode_f8(builder: ir.IRBuilder, dtype: str, value: ir.Value) -> ir.Value:
    """Round to an f8 without `cvt`: to nearest even, saturating, NaN kept.

    A normal result is rounded in the f32's bits (add half an ulp minus one plus the odd bit, cut).
    A subnormal result is what remains of adding the power of two whose ulp is its spacing.
    """
    mantissa, bias, largest = _F8_FORMATS[dtype]
    bits = builder.bitcast(value, I32)
    sign = builder.lshr(builder.and_(bits, ir.Constant(I32, 0x80000000)), ir.Constant(I32, 24))
    magnitude = builder.and_(bits, ir.Constant(I32, 0x7FFFFFFF))

    cut = 23 - mantissa
    shifted = builder.lshr(magnitude, ir.Constant(I32, cut))
    odd = builder.and_(shifted, ir.Constant(I32, 1))
    rounded = builder.add(builder.add(magnitude, ir.Constant(I32, (1 << (cut - 1)) - 1)), odd)
    normal = builder.lshr(rounded, ir.Constant(I32, cut))
    normal = builder.sub(normal, ir.Constant(I32, (127 - bias) << mantissa))

    # 2^(23 + smallest exponent) has the spacing of the subnormals, 2^(1 - bias - mantissa).
    anchor = ir.Constant(F32, 2.0 ** (24 - bias - mantissa))
    tiny = builder.fadd(builder.bitcast(magnitude, F32), anchor)
    subnormal = builder.sub(builder.bitcast(tiny, I32), builder.bitcast(anchor, I32))

    smallest = ir.Constant(I32, (128 - bias) << 23)
    is_normal = builder.icmp_unsigned(">=", magnitude, smallest)
    result = builder.select(is_normal, normal, subnormal)
    too_large = builder.icmp_unsigned(">", result, ir.Constant(I32, largest))
    result = builder.select(too_large, ir.Constant(I32, largest), result)
    is_nan = builder.icmp_unsigned(">", magnitude, ir.Constant(I32, 0x7F800000))
    result = builder.select(is_nan, ir.Constant(I32, 0x7F), result)
    return builder.trunc(builder.or_(result, sign), I8)


def rounding(dtype: str, *, native_f8: bool = True) -> Word:
    """Return a function that rounds a compute value to `dtype` and returns it as compute value."""
    code = COMPUTE_CODES[dtype]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        bits = encode(builder, dtype, [values[0]], native_f8)
        return decode(builder, dtype, bits, native_f8)[0]

    return define(f"round_{dtype}", code, (code,), generate)
