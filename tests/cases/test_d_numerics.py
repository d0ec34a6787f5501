"""Numerics and element types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redlang
from redlang import std
from tests.cases.judge import agrees, gives

inf, nan = np.inf, np.nan
f16, f32 = np.float16, np.float32


@redlang.kernel
def variance(x: "m n") -> "m":
    return std.var[n](x)


@redlang.kernel
def layer_norm(x: "m n") -> "m n":
    return std.layer_norm[n](x, eps=0.0)


@redlang.kernel
def centred(x: "m n") -> "m n":
    return std.layer_norm[n](x)


@redlang.kernel
def rms_norm(x: "m n") -> "m n":
    return std.rms_norm[n](x)


@redlang.kernel
def totals(x: "n") -> ("f32[]", "", "f32[]"):
    return sum[n](x), sum[n](x), mean[n](x)


def test_a_large_mean_leaves_the_variance_alone():  # C064
    gives(variance, (np.array([[1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24]], f32),), [80], rtol=1e-4)
    k = np.arange(256)
    gives(variance, ((1e6 + k % 4).astype(f32)[None],), [1.25], rtol=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    mean=st.floats(-1e5, 1e5, width=32),
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([2, 3, 17, 64, 257, 1000]),
)
def test_variance_is_positive_and_right(mean, seed, n):  # C065
    x = (np.random.default_rng(seed).normal(size=(1, n)) + mean).astype(f32)
    actual, right = variance(x)[0], x.astype(np.float64).var()
    assert actual >= 0
    assert abs(actual - right) <= 1e-4 * right


@pytest.mark.parametrize("n", [4, 129, 5000, 70001])
def test_differences_from_an_infinite_mean_are_infinite(n):
    @redlang.kernel
    def below(x: "m n") -> ("m n", "m", "m n"):
        d = x - mean[n](x)
        return d, count[n](d < 0), exp(d)

    x = np.arange(2 * n, dtype=f32).reshape(2, n)
    x[0, n // 2], x[1, -1] = inf, -inf
    d = np.array([[-inf], [inf]]) + np.zeros(n)
    d[0, n // 2] = d[1, -1] = nan
    gives(below, (x,), (d, [n - 1, 0], np.exp(d)))


def test_a_constant_row_has_nothing_to_normalise():  # C067
    row = (1e15 + np.arange(5)).astype(f32)[None]
    gives(centred, (row,), np.zeros((1, 5)))


def test_squares_of_halves_do_not_overflow():  # C068
    x = np.full((1, 2048), 200, f16)
    assert rms_norm(x).dtype == f16
    gives(rms_norm, (x,), np.ones((1, 2048)), rtol=1e-3)


def test_the_bound_on_squares_is_the_documented_one():  # C069
    # Squares add up in f32: 512 * 1e38 passes 3.4e38, 512 * 1e34 does not, f64 has room for both.
    assert "3.4e38" in (redlang.std.rms_norm.__doc__ or "") + (std.norms.__doc__ or "")
    gives(rms_norm, (np.full((1, 512), 1e17, f32),), np.ones((1, 512)))
    gives(rms_norm, (np.full((1, 512), 1e19),), np.ones((1, 512)))
    gives(layer_norm, (np.tile([1e17, 2e17], 64).astype(f32)[None],), [[-1, 1] * 64], rtol=1e-5)
    gives(layer_norm, (np.tile([1e19, 2e19], 64)[None],), [[-1, 1] * 64])


def test_half_layer_norm_is_the_float_one_rounded_once():  # C070
    x = (np.random.default_rng(70).random((5, 128)) * 0.1).astype(f16)
    half, single = centred(x), centred(x.astype(f32)).astype(f16)
    distance = np.abs(half.view(np.int16).astype(int) - single.view(np.int16).astype(int))
    assert half.dtype == f16
    assert distance.max() <= 1


def test_a_cast_that_was_written_rounds():  # C071
    @redlang.kernel
    def squared(x: "n") -> "f32[n]":
        return f32(f16(f16(x) * f16(x)))

    gives(squared, (np.array([5000, 3], f32),), [inf, 9])


def test_sums_of_rounded_terms_keep_their_rounding():  # C071
    @redlang.kernel
    def rounded(x: "n", y: "n") -> "f32[]":
        return sum[n](f16(x * y))

    rng = np.random.default_rng(71)
    x, y = rng.normal(size=(2, 300)).astype(f32)
    expected = (x * y).astype(f16).astype(np.float64).sum()
    assert abs(rounded(x, y) - expected) < 1e-4
    agrees(rounded, (x, y), rtol=1e-5, atol=1e-4, precision="declared")


def test_no_fast_mode_contradicts_masks():  # C073
    with pytest.raises((TypeError, redlang.RedlangError)):
        redlang.kernel(fastmath=True)  # type: ignore[call-overload]  # that is the test


def test_small_integers_do_not_wrap():  # C074
    @redlang.kernel
    def total(x: "n") -> "":
        return sum[n](x)

    gives(total, (np.arange(100, dtype=np.uint8),), 4950)
    gives(total, (np.full(3, 2**31 - 1, np.int32),), 6442450941)
    gives(total, (np.ones(5, bool),), 5)


def test_an_output_type_does_not_narrow_the_sum():  # C075
    @redlang.kernel
    def counted(x: "n") -> "u32[]":
        return sum[n](x)

    result = counted(np.ones(1000, bool))
    assert result.dtype == np.uint32
    assert result == 1000


def test_products_of_integers_are_computed_wide():  # C076
    @redlang.kernel
    def squares(x: "n") -> "":
        return sum[n](x * x)

    gives(squares, (np.full(2, 50000, np.int32),), 5_000_000_000)


def test_a_long_sum_of_halves():  # C077
    total, narrow, mean = totals(np.ones(70000, f16))
    assert (total, mean) == (70000, 1)
    assert narrow.dtype == f16
    assert np.isinf(narrow)


@pytest.mark.parametrize("n", range(1, 10))
def test_min_of_halves_at_every_extent(n):  # C078
    @redlang.kernel
    def middle_min(x: "a n b") -> "a b":
        return min[n](x)

    x = np.random.default_rng(78).normal(size=(2, n, 2)).astype(f16)
    gives(middle_min, (x,), x.min(axis=1), rtol=0)


def test_halves_work_on_the_cpu():  # C079
    x = np.random.default_rng(79).normal(size=(3, 50)).astype(f16)
    assert abs(variance(x).astype(float) - x.astype(float).var(axis=1)).max() < 1e-3


def test_sums_in_double_hold_their_bound():  # C080
    x = np.random.default_rng(80).random(100_000)
    gives(totals, (x,), (x.sum(), x.sum(), x.mean()), rtol=1e-6)
    np.testing.assert_allclose(totals(x)[1], x.sum(), rtol=1e-12)


def test_gradients_are_refused():  # C081
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones((2, 3), requires_grad=True)
    with pytest.raises(redlang.ArgumentError, match="grad"):
        variance(x)
    with torch.no_grad():
        assert (variance(x) == 0).all()
