"""The vocabulary of generated text on NumPy arrays, for the simulator."""

import ml_dtypes
import numpy as np

from redlang.ir import numerics
from redlang.ir.types import DTYPES

CODES = {
    "bool": np.bool_,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}


class Lanes(np.ndarray):
    """One value a thread; as a condition it must be the same in all of them."""

    def __bool__(self):
        plain = np.asarray(self).ravel()
        assert (plain == plain[0]).all(), "threads disagree in control flow"
        return bool(plain[0])


def lanes(array):
    return np.asarray(array).view(Lanes)


class Keys:
    """Ranks of floats, and keys made of a rank and an index."""

    def packed_key_f16(self, x, index):
        return self._packed(self._rank(x, np.float16, np.uint16), index)

    def packed_key_bf16(self, x, index):
        return self._packed(self._rank(x, ml_dtypes.bfloat16, np.uint16), index)

    def _packed(self, rank, index):
        return lanes((rank.astype(np.uint32) << 16) | (0xFFFF - index.astype(np.uint32)))

    def upper_half(self, key):
        return lanes(key >> np.uint32(16))

    def lower_half(self, key):
        return lanes(np.uint32(0xFFFF) - (key & np.uint32(0xFFFF)))

    def joined_key(self, rank, index):
        low = np.uint64(0xFFFFFFFF) - index.astype(np.uint64)
        return lanes((rank.astype(np.uint64) << np.uint64(32)) | low)

    def upper_key(self, key):
        return lanes((key >> np.uint64(32)).astype(np.uint32))

    def lower_key(self, key):
        return lanes(np.uint32(0xFFFFFFFF) - (key & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    def _rank(self, x, dtype, width):
        x = np.asarray(x, np.float32) + np.float32(0)
        bits = x.astype(dtype).view(width)
        top = width((1 << (8 * width().itemsize)) - 1)
        sign = width(1 << (8 * width().itemsize - 1))
        rank = np.where(bits & sign, bits ^ top, bits ^ sign)
        return lanes(np.where(np.isnan(x), top, rank).astype(np.uint32))

    def _unrank(self, rank, dtype, width):
        rank = np.asarray(rank).astype(width)
        top = width((1 << (8 * width().itemsize)) - 1)
        sign = width(1 << (8 * width().itemsize - 1))
        bits = np.where(rank & sign, rank ^ sign, rank ^ top).astype(width)
        return lanes(bits.view(dtype).astype(np.float32))

    def rank_f32(self, x):
        return self._rank(x, np.float32, np.uint32)

    def same_f32(self, one, other):
        one, other = np.asarray(one), np.asarray(other)
        return lanes((one == other) | (np.isnan(one) & np.isnan(other)))

    def unrank_f16(self, rank):
        return self._unrank(rank, np.float16, np.uint16)

    def unrank_bf16(self, rank):
        return self._unrank(rank, ml_dtypes.bfloat16, np.uint16)

    def unrank_f32(self, rank):
        return self._unrank(rank, np.float32, np.uint32)


def words():
    """Return the vocabulary on arrays of compute types."""
    known = {name: _typed(kind) for name, kind in CODES.items() if name != "bool"}
    known |= {"inf": np.inf, "nan": np.nan}
    for op, name in {
        "and": "logical_and",
        "or": "logical_or",
        "xor": "logical_xor",
        "not": "logical_not",
        "floordiv": "floor_divide",
        "mod": "modulo",
        "abs": "absolute",
        "round": "round_even",
        "isnan": "is_nan",
        "isfinite": "is_finite",
        "pow": "power",
    }.items():
        known[name] = _operator(op)
    for op in (
        *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sign", "tanh", "sigmoid", "erf"),
        *("sin", "cos", "floor", "ceil", "minimum", "maximum", "clip", "ldexp"),
    ):
        known[op] = _operator(op)
    known["select"] = lambda test, yes, no: lanes(np.where(test, yes, no))
    for code, kind in CODES.items():
        known[f"to_{code}"] = _conversion(np.dtype(kind))
    for name, dtype in DTYPES.items():
        known[f"cast_{name}"] = lambda x, d=dtype: lanes(
            numerics.cast(np.asarray(x), d, "declared")
        )
    known["reciprocal"] = lambda x: lanes(np.float32(1) / (x * _scale_of(x)))
    known["scale_of"] = lambda x: lanes(_scale_of(x))
    known["short_exp"] = known["exp"]
    known["short_tanh"] = known["tanh"]
    known["short_sigmoid"] = known["sigmoid"]
    known["mantissa_of"] = lambda x: lanes(np.frexp(x)[0])
    known["exponent_of"] = lambda x: lanes(np.frexp(x)[1].astype(np.int64))
    return known


def _typed(kind):
    def convert(x):
        if isinstance(x, np.ndarray):
            return lanes(x.astype(kind))
        return kind(x)

    return convert


def _operator(op):
    def apply(*arguments):
        arrays = [np.asarray(x) for x in arguments]
        found = numerics.apply(op, arrays)
        if arrays[0].dtype.kind == "f" and found.dtype.kind == "f":
            found = found.astype(arrays[0].dtype)
        return lanes(found)

    return apply


def _conversion(kind):
    def convert(x):
        x = np.asarray(x)
        if kind.kind in "iu":
            return lanes(numerics.to_integer(x, kind))
        return lanes(x.astype(kind))

    return convert


def _scale_of(x):
    bits = np.asarray(x, np.float32).view(np.int32) & 0x7F800000
    flipped = np.int64(254 << 23) - bits
    return np.maximum(flipped, 1 << 23).astype(np.int32).view(np.float32)
