import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir import numerics
from redlang.ir.numerics import to_storage
from redlang.ir.operators import OPERATORS
from redlang.ir.types import BF16, BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, F64, I8, I64, U8, U64


@pytest.fixture(autouse=True)
def silent():
    with np.errstate(all="ignore"):
        yield


def stored(values, dtype):
    return to_storage(np.array(values, np.float64), dtype).astype(np.float64).tolist()


def test_every_operator_has_a_meaning():
    assert set(numerics.FUNCTIONS) == set(OPERATORS)


def test_every_element_type_has_a_numpy_type():
    for dtype in DTYPES.values():
        assert numerics.storage_dtype(dtype).itemsize == dtype.bytes


def test_floats_become_integers_by_truncation_and_saturation():
    values = np.array([1.9, -1.9, np.nan, 1e30, -1e30, np.inf, 300, -300])
    assert to_storage(values, I8).tolist() == [1, -1, 0, 127, -128, 127, 127, -128]
    assert to_storage(values, U8).tolist() == [1, 0, 0, 255, 0, 255, 255, 0]
    assert to_storage(values[2:6], I64).tolist() == [0, 2**63 - 1, -(2**63), 2**63 - 1]
    assert to_storage(values[3:5], U64).tolist() == [2**64 - 1, 0]
    assert to_storage(np.array([2.0**63, -(2.0**63)]), I64).tolist() == [2**63 - 1, -(2**63)]


def test_integers_wrap():
    assert to_storage(np.array([300, -1]), U8).tolist() == [44, 255]
    assert to_storage(np.array([-1]), U64).tolist() == [2**64 - 1]
    assert numerics.literal(2**63, I64, "double") == -(2**63)
    assert numerics.literal(2**63, U64, "double") == 2**63


def test_f8_saturates_and_keeps_nan():
    assert stored([1000, -1e9, np.inf], F8E4M3) == [448, -448, 448]
    assert stored([1e9, -np.inf], F8E5M2) == [57344, -57344]
    assert all(math.isnan(value) for value in stored([np.nan], F8E4M3) + stored([np.nan], F8E5M2))


def test_f16_and_bf16_overflow_to_infinity():
    assert stored([65520, 65519.99, -1e6], F16) == [math.inf, 65504, -math.inf]
    assert stored([3.4e38, 1e300], BF16) == [math.inf, math.inf]


def test_rounding_is_to_even():
    assert stored([17, 19], F8E4M3) == [16, 20]
    assert stored([1 + 2**-8, 1 + 3 * 2**-8], BF16) == [1, 1 + 2**-6]


def test_truth_values():
    assert to_storage(np.array([0.0, -0.0, 0.5, np.nan]), BOOL).tolist() == [
        False,
        False,
        True,
        True,
    ]


@given(st.floats(width=64), st.sampled_from([F8E4M3, F8E5M2, F16, BF16, F32]))
def test_a_float64_is_rounded_once_to_a_nearest_neighbour(value, dtype):
    (rounded,) = stored([value], dtype)
    if math.isnan(value):
        assert math.isnan(rounded)
        return
    codes = np.arange(2**dtype.bits, dtype=np.uint64) if dtype.bits <= 16 else None
    if codes is None:
        assert rounded == np.float64(np.float32(value)) or math.isinf(rounded)
        return
    unsigned = {8: np.uint8, 16: np.uint16}[dtype.bits]
    every = codes.astype(unsigned).view(numerics.storage_dtype(dtype)).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    if math.isinf(rounded):
        # Half a step above the largest number, and beyond.
        assert abs(value) >= every[-1] + (every[-1] - every[-2]) / 2
        return
    nearest = np.min(np.abs(every - min(max(value, every[0]), every[-1])))
    assert abs(rounded - min(max(value, every[0]), every[-1])) == nearest


@given(st.floats(width=32))
def test_rounding_from_float32_and_from_float64_agree(value):
    single, double = np.array([value], np.float32), np.array([value], np.float64)
    for dtype in (F8E4M3, F8E5M2, F16, BF16):
        a, b = to_storage(single, dtype), to_storage(double, dtype)
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def test_ml_dtypes_alone_would_round_twice():
    value = np.array([1 + 2**-8 + 2**-40])
    assert value.astype(ml_dtypes.bfloat16).astype(np.float64) == 1
    assert stored(value, BF16) == [1 + 2**-7]


def test_casts_return_to_the_work_type():
    value = np.array([1.0 + 2**-30])
    assert numerics.cast(value, F16, "double").dtype == np.float64
    assert numerics.cast(value, F32, "double")[0] == 1
    assert numerics.cast(value, F64, "double")[0] == value[0]
    assert numerics.cast(value.astype(np.float32), F16, "declared").dtype == np.float32
    assert numerics.convert(value, F32, "double")[0] == value[0]


def apply(op, *arguments):
    return numerics.apply(op, [np.asarray(argument) for argument in arguments])


def test_integer_division_rounds_down_and_by_zero_gives_zero():
    a, b = np.array([7, -7, 7, -7, 5]), np.array([2, 2, -2, -2, 0])
    assert apply("floordiv", a, b).tolist() == [3, -4, -4, 3, 0]
    assert apply("mod", a, b).tolist() == [1, 1, -1, -1, 0]


def test_float_division_follows_python():
    assert apply("floordiv", 1.0, 0.1) == 1.0 // 0.1
    assert apply("mod", -1.0, 3.0) == 2.0
    assert math.isnan(apply("mod", 1.0, 0.0))


def test_integers_wrap_in_int64():
    largest = np.array(2**63 - 1)
    assert apply("add", largest, 1) == -(2**63)
    assert apply("mul", np.array(2**62), 4) == 0
    assert apply("pow", np.array(3), np.array(50)) == (3**50 + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("op", ["minimum", "maximum"])
def test_minimum_and_maximum_propagate_nan_and_order_zeros(op):
    assert math.isnan(apply(op, np.nan, 1.0))
    assert math.isnan(apply(op, 1.0, np.nan))
    for zeros in ((-0.0, 0.0), (0.0, -0.0)):
        assert math.copysign(1, apply(op, *zeros)) == (1 if op == "maximum" else -1)


def test_clip_and_sign_propagate_nan():
    assert math.isnan(apply("clip", np.nan, 0.0, 1.0))
    assert apply("clip", [-1.0, 0.5, 2.0], 0.0, 1.0).tolist() == [0, 0.5, 1]
    assert math.isnan(apply("sign", np.nan))


def test_round_is_half_to_even_and_keeps_integers():
    assert apply("round", [0.5, 1.5, 2.5, -0.5]).tolist() == [0, 2, 2, 0]
    for op in ("round", "floor", "ceil"):
        assert apply(op, 2**62 + 1) == 2**62 + 1


def test_element_functions_at_their_edges():
    assert apply("sigmoid", [-1000.0, 0.0, 1000.0]).tolist() == [0, 0.5, 1]
    assert apply("rsqrt", [4.0, 0.0, np.inf]).tolist() == [0.5, math.inf, 0]
    assert apply("erf", [0.5]).tolist() == [math.erf(0.5)]
    assert apply("isnan", [1, 2]).tolist() == [False, False]
    assert apply("isfinite", [1.0, np.inf, np.nan]).tolist() == [True, False, False]
    assert apply("ldexp", [0.5, 0.5], [3, 10**6]).tolist() == [4, math.inf]
