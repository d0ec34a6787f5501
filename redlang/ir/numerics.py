"""What element types and element functions mean on numbers, in NumPy.

One table gives each operator its meaning on arrays that are already in their work type: the NumPy
type in which the interpreters compute values of a compute type. In `double` precision every float
is worked on as float64, in `declared` precision as its own compute type; integers are int64 or
uint64 either way and wrap there. Callers silence NumPy's floating-point warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from redlang.ir import types
from redlang.ir.types import DType

Array: TypeAlias = NDArray[Any]
Precision: TypeAlias = Literal["double", "declared"]
Function: TypeAlias = Callable[..., Any]

_STORAGE: dict[DType, np.dtype[Any]] = {
    types.BOOL: np.dtype(np.bool_),
    types.I8: np.dtype(np.int8),
    types.I16: np.dtype(np.int16),
    types.I32: np.dtype(np.int32),
    types.I64: np.dtype(np.int64),
    types.U8: np.dtype(np.uint8),
    types.U16: np.dtype(np.uint16),
    types.U32: np.dtype(np.uint32),
    types.U64: np.dtype(np.uint64),
    types.F8E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    types.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    types.F16: np.dtype(np.float16),
    types.BF16: np.dtype(ml_dtypes.bfloat16),
    types.F32: np.dtype(np.float32),
    types.F64: np.dtype(np.float64),
}

_LARGEST_F8 = {types.F8E4M3: 448.0, types.F8E5M2: 57344.0}


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type of arrays that hold `dtype`."""
    return _STORAGE[dtype]


def work_dtype(dtype: DType, precision: Precision) -> np.dtype[Any]:
    """Return the NumPy type in which values of `dtype` are computed."""
    compute = types.compute_type(dtype)
    if compute.kind == "float" and precision == "double":
        return np.dtype(np.float64)
    return _STORAGE[compute]


def to_storage(values: Array, dtype: DType) -> Array:
    """Round `values` to `dtype` as a cast or a store does (decision 12), in its NumPy type.

    Float to integer truncates and saturates, NaN gives 0; integers wrap; f8 rounds to even and
    saturates, NaN stays; f16 and bf16 overflow to infinity. Every rounding happens once, also
    from float64.
    """
    target = _STORAGE[dtype]
    if values.dtype == target:
        return values
    if dtype.kind in ("int", "uint"):
        return to_integer(values, target)
    if dtype.kind == "bool" or values.dtype.kind not in "f":
        if dtype.bits >= 32 or dtype.kind == "bool":
            return values.astype(target)
        values = values.astype(np.float64)
    if dtype in _LARGEST_F8:
        largest = _LARGEST_F8[dtype]
        values = np.clip(values, -largest, largest)
    if dtype in (types.F32, types.F64, types.F16):
        return values.astype(target)
    return _round_to_odd(values).astype(target)


def _round_to_odd(values: Array) -> Array:
    """Return float32 values whose rounding to a narrower type equals that of `values` themselves.

    ml_dtypes converts float64 by way of float32, which rounds twice. Truncating to float32 with
    the last bit set where anything was lost keeps the second rounding right (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008): float32 has more than two bits more than
    bf16 and f8.
    """
    if values.dtype == np.float32:
        return values
    nearest = values.astype(np.float32)
    back = nearest.astype(np.float64)
    inexact = (back != values) & ~np.isnan(values)
    above = np.abs(back) > np.abs(values)
    truncated = np.where(above, np.nextafter(nearest, np.float32(0)), nearest)
    truncated = np.copysign(truncated, nearest)
    bits: Array = np.asarray(truncated).view(np.uint32) | inexact.astype(np.uint32)
    return np.asarray(bits).view(np.float32)


def to_integer(values: Array, target: np.dtype[Any]) -> Array:
    """Convert to an integer type: floats truncate and saturate, NaN gives 0, integers wrap."""
    if values.dtype.kind != "f":
        return values.astype(target)
    limits = np.iinfo(target)
    wide = np.trunc(
        np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    )
    # The upper limit itself may not be a float64; anything that reaches 2^bits saturates.
    above = wide >= float(limits.max)
    below = wide <= float(limits.min)
    inside = np.where(above | below, 0.0, wide).astype(target)
    return np.where(
        above, target.type(limits.max), np.where(below, target.type(limits.min), inside)
    )


def cast(values: Array, dtype: DType, precision: Precision) -> Array:
    """Round to `dtype` and return to its work type."""
    return to_storage(values, dtype).astype(work_dtype(dtype, precision), copy=False)


def convert(values: Array, dtype: DType, precision: Precision) -> Array:
    """Change the compute type without the rounding of a cast."""
    target = work_dtype(dtype, precision)
    if target.kind in "iu":
        return to_integer(values, target)
    return values.astype(target, copy=False)


def literal(value: bool | int | float, dtype: DType, precision: Precision) -> Array:
    """Return a number as a 0-d array of the work type; integers wrap into theirs."""
    target = work_dtype(dtype, precision)
    if target.kind in "iu":
        bits = int(value) & 0xFFFF_FFFF_FFFF_FFFF
        return np.array(bits, np.uint64).astype(target)
    return np.array(value, target)


def lowest(dtype: np.dtype[Any]) -> Array:
    """Return the identity of max: -inf, or the least integer, as a 0-d array."""
    if dtype.kind == "f":
        return np.array(-np.inf, dtype)
    return np.array(False if dtype.kind == "b" else np.iinfo(dtype).min, dtype)


def highest(dtype: np.dtype[Any]) -> Array:
    """Return the identity of min: +inf, or the greatest integer, as a 0-d array."""
    if dtype.kind == "f":
        return np.array(np.inf, dtype)
    return np.array(True if dtype.kind == "b" else np.iinfo(dtype).max, dtype)


def is_nan(values: Array) -> Array:
    """Return where `values` are NaN; integers and truth values never are."""
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)


def maximum(left: Array, right: Array) -> Array:
    """Return the larger value: NaN propagates, and -0 is below +0."""
    larger = np.maximum(left, right)
    if larger.dtype.kind != "f":
        return larger
    # -0 + -0 is -0, every other sum of two zeros is +0.
    return np.where((left == 0) & (right == 0), left + right, larger)


def minimum(left: Array, right: Array) -> Array:
    """Return the smaller value: NaN propagates, and -0 is below +0."""
    smaller = np.minimum(left, right)
    if smaller.dtype.kind != "f":
        return smaller
    return np.where((left == 0) & (right == 0), -(-left + -right), smaller)


def _sigmoid(values: Array) -> Array:
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))


def _rsqrt(values: Array) -> Array:
    return 1 / np.sqrt(values)


def _erf(values: Array) -> Array:
    # One call an element: the interpreter needs no SciPy for its least used function.
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(values.astype(np.float64)), np.float64)


def _is_finite(values: Array) -> Array:
    return np.isfinite(values) if values.dtype.kind == "f" else np.ones(values.shape, np.bool_)


def _clip(values: Array, low: Array, high: Array) -> Array:
    return minimum(maximum(values, low), high)


def _ldexp(values: Array, exponent: Array) -> Array:
    # Beyond +-5000 every float64 is 0 or infinite, and C's ldexp takes an int.
    return np.ldexp(values, np.clip(exponent, -5000, 5000).astype(np.int32))


FUNCTIONS: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    # Both as Python's: rounded down, the remainder has the divisor's sign; integers by 0 give 0.
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "pow": np.power,
    "neg": np.negative,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "abs": np.abs,
    "sign": np.sign,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "minimum": minimum,
    "maximum": maximum,
    "clip": _clip,
    "where": np.where,
    "isnan": is_nan,
    "isfinite": _is_finite,
    "ldexp": _ldexp,
}
"""The meaning of every operator of `ir.operators`, elementwise on arrays in their work types."""

_KEEPS_INTEGERS = frozenset(("floor", "ceil", "round"))


def apply(op: str, arguments: list[Array]) -> Array:
    """Return the operator's value; the caller converts it to the node's work type."""
    if op in _KEEPS_INTEGERS and arguments[0].dtype.kind != "f":
        return arguments[0]
    return np.asarray(FUNCTIONS[op](*arguments))
