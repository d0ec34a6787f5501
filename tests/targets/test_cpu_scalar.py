import numpy as np
import pytest

from redlang.ir import numerics
from tests.targets.cpu_running import elementwise

# NaN and infinities are what these tests are about; NumPy warns of each.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FLOATS = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.5, 0.5, -7.0, np.inf, -np.inf, np.nan])
LEAST, MOST = -(2**63), 2**63 - 1
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, 16, 1 << 40, LEAST, MOST, LEAST + 1])
NATURALS = np.array([0, 1, 2, 7, 16, 1 << 40, 2**63, 2**64 - 1], np.uint64)
SAMPLES = {
    "f32": FLOATS.astype(np.float32),
    "f64": FLOATS,
    "i64": INTEGERS,
    "u64": NATURALS,
}
BINARY = {
    "maximum(a, b)": "maximum",
    "minimum(a, b)": "minimum",
    "floor_divide(a, b)": "floordiv",
    "modulo(a, b)": "mod",
}
UNARY = {
    "sign(a)": "sign",
    "absolute(a)": "abs",
    "floor(a)": "floor",
    "ceil(a)": "ceil",
    "round_even(a)": "round",
}


def same(got, expected):
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        zero = got == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("dtype", SAMPLES)
@pytest.mark.parametrize("expression", BINARY)
def test_binary_functions_agree_with_the_interpreter(expression, dtype):
    a, b = (part.ravel() for part in np.meshgrid(SAMPLES[dtype], SAMPLES[dtype]))
    got = elementwise(expression, a, b, dtypes=[dtype] * 2, output=dtype)
    same(got, numerics.apply(BINARY[expression], [a, b]))


@pytest.mark.parametrize("dtype", SAMPLES)
@pytest.mark.parametrize("expression", UNARY)
def test_unary_functions_agree_with_the_interpreter(expression, dtype):
    x = SAMPLES[dtype]
    got = elementwise(expression, x, dtypes=[dtype], output=dtype)
    expected = numerics.apply(UNARY[expression], [x])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", SAMPLES)
def test_clip_lets_the_upper_bound_win(dtype):
    a, b, c = (part.ravel() for part in np.meshgrid(*[SAMPLES[dtype]] * 3))
    got = elementwise("clip(a, b, c)", a, b, c, dtypes=[dtype] * 3, output=dtype)
    same(got, numerics.apply("clip", [a, b, c]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floats_are_told_apart(dtype):
    x = SAMPLES[dtype]
    for expression, expected in (("is_nan(a)", np.isnan(x)), ("is_finite(a)", np.isfinite(x))):
        got = elementwise(expression, x, dtypes=[dtype], output="bool")
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_ranking_puts_nan_first_and_an_empty_entry_last(dtype):
    values = SAMPLES[dtype]
    x, best = (part.ravel() for part in np.meshgrid(values, values))
    for name, beats in (("ranks_above", x > best), ("ranks_below", x < best)):
        for place in (-1, 3):
            where = np.full(x.shape, place)
            got = elementwise(
                f"{name}(a, b, c)", x, best, where, dtypes=[dtype, dtype, "i64"], output="bool"
            )
            nan = numerics.is_nan
            expected = (place < 0) | (~nan(best) & (nan(x) | beats))
            np.testing.assert_array_equal(got, expected)


def test_logic_works_on_truth_values_and_on_bits():
    x, y = INTEGERS, INTEGERS[::-1].copy()
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        got = elementwise(f"logical_{name}(a, b)", x, y, dtypes=["i64"] * 2, output="i64")
        np.testing.assert_array_equal(got, function(x, y))
        p, q = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
        got = elementwise(f"logical_{name}(a, b)", p, q, dtypes=["bool"] * 2, output="bool")
        np.testing.assert_array_equal(got, function(p, q))
    got = elementwise("logical_not(a)", x, dtypes=["i64"], output="i64")
    np.testing.assert_array_equal(got, ~x)


def test_select_takes_no_branch_and_hides_nan():
    x = np.array([1, np.nan, 3], np.float32)
    got = elementwise("select(is_nan(a), f32(0.0), a)", x, dtypes=["f32"], output="f32")
    np.testing.assert_array_equal(got, [1, 0, 3])
