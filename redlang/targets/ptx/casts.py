"""Conversions between compute types, and the casts that users write.

`to_<compute>` changes the compute type; `cast_<storage>` rounds to a storage type and returns the
value in its compute type. Floats become integers by truncation, saturating, NaN as 0; integers
wrap.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.ir.types import DTYPES
from redlang.targets.kinds import (
    F32,
    F64,
    I1,
    I32,
    I64,
    INT64,
    LLVM_TYPES,
    SCALARS,
    Kind,
    Signature,
)
from redlang.targets.ptx.convert import COMPUTE_CODES, decode, encode
from redlang.targets.ptx.elementary import FLOATS, libdevice, on_floats
from redlang.targets.ptx.inline import REGISTER_LETTERS, Typed, Values, Word, asm, define_generic


def _converted(builder: ir.IRBuilder, x: ir.Value, source: Kind, target: str) -> ir.Value:
    kind = LLVM_TYPES[target]
    signed = source.signed
    if kind in (F32, F64):
        if x.type == kind:
            return x
        if source in FLOATS:
            return (builder.fpext if kind == F64 else builder.fptrunc)(x, kind)
        return (builder.sitofp if signed else builder.uitofp)(x, kind)
    if kind == I1:
        zero = ir.Constant(x.type, 0)
        compare = builder.fcmp_unordered if source in FLOATS else builder.icmp_unsigned
        return compare("!=", x, zero)
    if source in FLOATS:
        bits = SCALARS[target].bits
        return _truncated(builder, x, bits, signed=target.startswith("i"))
    if x.type.width == kind.width:
        return x
    if x.type.width > kind.width:
        return builder.trunc(x, kind)
    return (builder.sext if signed else builder.zext)(x, kind)


def _truncated(builder: ir.IRBuilder, x: ir.Value, bits: int, *, signed: bool) -> ir.Value:
    """Emit a float as an integer of `bits` bits, held in 32 or 64."""
    wide = I64 if bits == 64 else I32
    source = "f32" if x.type == F32 else "f64"
    letters = f"={REGISTER_LETTERS[wide]},{REGISTER_LETTERS[x.type]}"
    # PTX saturates to the type's range, and makes 0 of NaN where neither side has 64 bits.
    text = f"cvt.rzi.{'s' if signed else 'u'}{bits}.{source} $0, $1;"
    whole = asm(builder, wide, text, letters, [x])
    if source == "f32" and bits < 64:
        return whole
    return builder.select(builder.fcmp_ordered("ord", x, x), whole, ir.Constant(wide, 0))


def _cast(builder: ir.IRBuilder, x: ir.Value, source: Kind, target: str) -> ir.Value:
    dtype = DTYPES[target]
    code = COMPUTE_CODES[target]
    if dtype.kind in ("int", "uint") and source in FLOATS:
        signed = dtype.kind == "int"
        whole = _truncated(builder, x, dtype.bits, signed=signed)
        if whole.type == I64:
            return whole
        return (builder.sext if signed else builder.zext)(whole, I64)
    if dtype.kind in ("int", "uint") and dtype.bits < 64:
        narrow = builder.trunc(_converted(builder, x, source, "i64"), ir.IntType(dtype.bits))
        return (builder.sext if dtype.kind == "int" else builder.zext)(narrow, I64)
    if x.type == F64 and dtype.bits < 32 and dtype.kind == "float":
        x = _to_odd(builder, x)
    else:
        x = _converted(builder, x, source, code)
    if dtype.bits >= 32 or dtype.kind == "bool":
        return x
    # Without `cvt` for f8 the portable form is right everywhere, and casts are rare.
    return decode(builder, target, encode(builder, target, [x], False), False)[0]


def _to_odd(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Emit an f32 whose rounding to a narrower type equals that of the f64 `x`.

    Truncation with the last bit set where anything was lost keeps a second rounding right
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    cut = asm(builder, F32, "cvt.rz.f32.f64 $0, $1;", "=f,d", [x])
    lost = builder.fcmp_unordered("!=", builder.fpext(cut, F64), x)
    bits = builder.or_(builder.bitcast(cut, I32), builder.zext(lost, I32))
    return builder.bitcast(bits, F32)


def conversion(target: str) -> Word:
    """Return the word `to_<target>` for a type code."""

    def typed(source: Kind) -> Typed:
        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return _converted(builder, values[0], source, target)

        return Signature(SCALARS[target], (source,)), generate

    return define_generic(f"to_{target}", 1, typed)


def cast(target: str) -> Word:
    """Return the word `cast_<target>` for a storage type."""

    def typed(source: Kind) -> Typed:
        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return _cast(builder, values[0], source, target)

        return Signature(SCALARS[COMPUTE_CODES[target]], (source,)), generate

    return define_generic(f"cast_{target}", 1, typed)


def _ldexp(kind: Kind, exponent: Kind) -> Typed:
    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        value, power = values
        # Beyond +-5000 every float is 0 or infinite, and libdevice's exponent is an i32.
        for bound, sign in ((5000, "<"), (-5000, ">")):
            limit = ir.Constant(I64, bound)
            power = builder.select(builder.icmp_signed(sign, power, limit), power, limit)
        arguments = [value, builder.trunc(power, I32)]
        symbol = "__nv_ldexpf" if value.type == F32 else "__nv_ldexp"
        shape = ir.FunctionType(value.type, [value.type, I32])
        known = builder.module.globals.get(symbol)
        return builder.call(known or ir.Function(builder.module, shape, symbol), arguments)

    return Signature(kind, (kind, INT64)), generate


ldexp = define_generic("ldexp", 2, _ldexp)


def _parts(builder: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit mantissa in [0.5, 1) and exponent (i64); 0, infinity and NaN have exponent 0."""
    whole, bias, cut, mask = (I32, 126, 23, 0xFF) if x.type == F32 else (I64, 1022, 52, 0x7FF)
    zero, infinity = ir.Constant(x.type, 0.0), ir.Constant(x.type, float("inf"))
    magnitude = libdevice(builder, "fabs", x)
    # A subnormal is made normal first: 2^64 is enough for either type.
    subnormal = builder.fcmp_ordered("<", magnitude, ir.Constant(x.type, 2.0 ** (1 - bias)))
    scaled = builder.select(subnormal, builder.fmul(x, ir.Constant(x.type, 2.0**64)), x)
    raw = builder.bitcast(scaled, whole)
    field = builder.and_(builder.lshr(raw, ir.Constant(whole, cut)), ir.Constant(whole, mask))
    kept = builder.and_(raw, ir.Constant(whole, ~(mask << cut)))
    mantissa = builder.bitcast(builder.or_(kept, ir.Constant(whole, bias << cut)), x.type)
    wide = field if whole is I64 else builder.zext(field, I64)
    shift = builder.select(subnormal, ir.Constant(I64, bias + 64), ir.Constant(I64, bias))
    regular = builder.and_(
        builder.fcmp_ordered("<", magnitude, infinity), builder.fcmp_ordered(">", magnitude, zero)
    )
    return (
        builder.select(regular, mantissa, x),
        builder.select(regular, builder.sub(wide, shift), ir.Constant(I64, 0)),
    )


mantissa_of = on_floats("mantissa_of", lambda builder, x: _parts(builder, x)[0])


def _exponent_of(kind: Kind) -> Typed:
    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return _parts(builder, values[0])[1]

    return Signature(INT64, (kind,)), generate


exponent_of = define_generic("exponent_of", 1, _exponent_of)
