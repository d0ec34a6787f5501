"""The words of generated scalar text on CUDA, as `codegen.scalars` writes them."""

from __future__ import annotations

import math
from types import SimpleNamespace

from redlang.targets.expressions import Register
from redlang.targets.ptx.casts import cast, conversion, exponent_of, ldexp, mantissa_of
from redlang.targets.ptx.elementary import (
    exp,
    exp2,
    fma,
    maximum,
    minimum,
    rsqrt,
    short_exp,
    short_sigmoid,
    short_tanh,
    sigmoid,
)
from redlang.targets.ptx.functions import (
    absolute,
    ceil,
    clip,
    cos,
    erf,
    floor,
    floor_divide,
    is_finite,
    is_nan,
    log,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    modulo,
    power,
    reciprocal,
    round_even,
    scale_of,
    select,
    sign,
    sin,
    sqrt,
    tanh,
)
from redlang.targets.ptx.inline import Word, define


def _number(code: str) -> Word:
    """Return the word that makes a number of a type: its argument is cast to it."""
    return define(code, code, (code,), lambda builder, values: values[0])


f32, f64 = _number("f32"), _number("f64")
i32, i64, u32, u64 = _number("i32"), _number("i64"), _number("u32"), _number("u64")
inf, nan = math.inf, math.nan

cuda = SimpleNamespace(
    threadIdx=SimpleNamespace(x=Register("tid.x")),
    blockIdx=SimpleNamespace(x=Register("ctaid.x")),
    gridDim=SimpleNamespace(x=Register("nctaid.x")),
)
"""Where a thread is in its block, and the block in the grid."""

to_bool = conversion("bool")
to_i32 = conversion("i32")
to_u32 = conversion("u32")
to_i64 = conversion("i64")
to_u64 = conversion("u64")
to_f32 = conversion("f32")
to_f64 = conversion("f64")

cast_bool = cast("bool")
cast_i8 = cast("i8")
cast_i16 = cast("i16")
cast_i32 = cast("i32")
cast_i64 = cast("i64")
cast_u8 = cast("u8")
cast_u16 = cast("u16")
cast_u32 = cast("u32")
cast_u64 = cast("u64")
cast_f8e4m3 = cast("f8e4m3")
cast_f8e5m2 = cast("f8e5m2")
cast_f16 = cast("f16")
cast_bf16 = cast("bf16")
cast_f32 = cast("f32")
cast_f64 = cast("f64")

__all__ = [
    "absolute",
    "cast_bf16",
    "cast_bool",
    "cast_f8e4m3",
    "cast_f8e5m2",
    "cast_f16",
    "cast_f32",
    "cast_f64",
    "cast_i8",
    "cast_i16",
    "cast_i32",
    "cast_i64",
    "cast_u8",
    "cast_u16",
    "cast_u32",
    "cast_u64",
    "ceil",
    "clip",
    "cos",
    "cuda",
    "erf",
    "exp",
    "exp2",
    "exponent_of",
    "f32",
    "f64",
    "floor",
    "floor_divide",
    "fma",
    "i32",
    "i64",
    "inf",
    "is_finite",
    "is_nan",
    "ldexp",
    "log",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "mantissa_of",
    "maximum",
    "minimum",
    "modulo",
    "nan",
    "power",
    "reciprocal",
    "round_even",
    "rsqrt",
    "scale_of",
    "select",
    "short_exp",
    "short_sigmoid",
    "short_tanh",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "tanh",
    "to_bool",
    "to_f32",
    "to_f64",
    "to_i32",
    "to_i64",
    "to_u32",
    "to_u64",
    "u32",
    "u64",
]
