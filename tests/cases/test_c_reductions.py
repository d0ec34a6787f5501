"""Reductions: tiling, order, indices, shapes."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import redlang
from redlang import std
from tests.cases.judge import agrees, gives

inf, nan = np.inf, np.nan
f32 = np.float32


@redlang.kernel
def row_sums(x: "m n") -> "m":
    return sum[n](x)


@redlang.kernel
def row_max(x: "m n") -> "m":
    return max[n](x)


@redlang.kernel
def extremes(x: "m n") -> ("m", "m", "m", "m", "m"):
    """Everything that ranks, and the sum, of one row."""
    return max[n](x), min[n](x), argmax[n](x), argmin[n](x), sum[n](x)


@redlang.kernel
def moments(x: "n") -> ("", "", "", ""):
    return std.mean[n](x), std.var[n](x), sum[n](x), prod[n](x)


@redlang.kernel
def product(a: "i k", b: "k j") -> "i j":
    return sum[k](a * b)


@redlang.kernel
def flat_argmin(y: "i j") -> ("", ""):
    return argmin[i, j](y)


@pytest.mark.parametrize("n", [1, 3, 31, 33, 48, 96, 127])
def test_every_lane_is_added(n):  # C033
    x = np.arange(1, n + 1, dtype=f32)[None]
    gives(row_sums, (x,), [n * (n + 1) / 2])


def test_rows_do_not_share_scratch():  # C034
    x = np.repeat(np.arange(1, 9, dtype=f32), 33).reshape(8, 33)
    gives(row_sums, (x,), 33 * np.arange(1, 9))


@pytest.mark.parametrize("n", [20, 576, 768])
def test_no_element_is_skipped_or_counted_twice(n):  # C035
    @redlang.kernel
    def widest(x: "m n") -> "m":
        return max[n](abs(x))

    gives(widest, (np.eye(n, dtype=f32) * -7,), np.full(n, 7.0))
    gives(row_sums, (np.arange(n, dtype=f32)[None],), [n * (n - 1) / 2])


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
def test_max_propagates_nan_in_every_type(dtype):  # C036
    gives(row_max, (np.array([[1, nan], [nan, 1], [1, 2]], dtype),), [nan, nan, 2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_merging_propagates_nan(dtype):  # C036
    first, second = row_max.fold("n"), row_max.fold("n")
    first.update(np.array([[-1]], dtype))
    second.update(np.array([[nan]], dtype))
    assert np.isnan(first.merge(second).result()).all()


@pytest.mark.parametrize(
    ("row", "index"),
    [([inf, nan], 1), ([nan, inf], 0), ([nan, 6, 8], 0), ([6, 8, nan], 2), ([nan, nan], 0)],
)
def test_nan_ranks_above_every_number(row, index):  # C037
    x = np.array([row], f32)
    _, _, largest, smallest, _ = agrees(extremes, (x,))
    assert largest == smallest == index


@pytest.mark.parametrize("place", ["first", "middle", "last", "nowhere"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_backends_treat_nan_alike(dtype, place):  # C038, C039
    x = np.random.default_rng(38).integers(-4, 4, size=(3, 41)).astype(dtype)
    index = {"first": 0, "middle": 20, "last": 40}.get(place)
    if index is not None:
        x[:, index] = nan
    largest, smallest, argmax, argmin, total = agrees(extremes, (x,))
    if index is None:
        np.testing.assert_array_equal(argmax, x.argmax(axis=1))
        np.testing.assert_array_equal(argmin, x.argmin(axis=1))
    else:
        assert np.isnan(np.stack([largest, smallest, total])).all()
        assert (argmax == index).all()
        assert (argmin == index).all()


def test_indices_are_logical_whatever_the_layout():  # C041
    y = np.random.default_rng(41).permutation(35).reshape(5, 7).astype(f32).T
    i, j = agrees(flat_argmin, (y,))
    assert (i, j) == np.unravel_index(np.argmin(y), y.shape)


def test_argmax_of_a_mean():  # C041
    @redlang.kernel
    def heaviest(x: "i j") -> "":
        return argmax[i](mean[j](x))

    x = np.random.default_rng(42).normal(size=(9, 13)).astype(f32)
    gives(heaviest, (x,), np.argmax(x.mean(axis=1)))


def test_the_first_of_equals_wins_whatever_else_is_returned():  # C042
    @redlang.kernel
    def only(x: "m n") -> "m":
        return argmax[n](x)

    for row, index in (([5] * 999, 0), ([1, 3, 3, 2], 1)):
        x = np.array([row], f32)
        gives(only, (x,), [index])
        assert agrees(extremes, (x,))[2] == index


def test_reducing_one_element_removes_its_axis():  # C043
    @redlang.kernel
    def columns(x: "m n") -> "n":
        return sum[m](x)

    x = np.arange(128, dtype=f32)[None]
    gives(columns, (x,), x[0])


def test_a_broadcast_result_is_written_to_the_end():  # C044
    @redlang.kernel
    def both(a: "i j", b: "i") -> ("i j", "i"):
        return b, sum[j](a)

    a, b = np.ones((16, 64), f32), np.arange(16, dtype=f32)
    gives(both, (a, b), (np.repeat(b[:, None], 64, axis=1), np.full(16, 64)))


def test_integers_add_as_integers():  # C045
    total = row_sums(np.ones((1, 5000), np.int32))
    assert total.dtype == np.int64
    assert total == 5000


def test_padding_is_neutral_after_the_map():  # C046
    @redlang.kernel
    def mapped(x: "m n") -> ("n", "n"):
        return sum[m](2 * x + 0.25), sum[m](exp(x))

    gives(mapped, (np.zeros((33, 3), f32),), (np.full(3, 8.25), np.full(3, 33)))


def test_nothing_is_written_beside_the_result():  # C047
    @redlang.kernel
    def doubled(x: "m n") -> "m n":
        return 2 * x

    x = np.ones((5, 66), f32)
    guarded = np.full((7, 70), nan, f32)
    doubled(x, out=guarded[1:6, 2:68])
    assert (guarded[1:6, 2:68] == 2).all()
    guarded[1:6, 2:68] = nan
    assert np.isnan(guarded).all()


def test_a_contraction_ends_where_its_axis_ends():  # C048
    rng = np.random.default_rng(48)
    a, b = np.full((6, 80), nan, f32), np.full((80, 7), nan, f32)
    a[:, :65], b[:65] = rng.normal(size=(6, 65)), rng.normal(size=(65, 7))
    gives(product, (a[:, :65], b[:65]), a[:, :65].astype(float) @ b[:65], rtol=1e-4, atol=1e-5)


def test_nothing_has_no_mean():  # C049
    gives(moments, (np.zeros(0, f32),), (nan, nan, 0, 1))


def test_a_contraction_over_nothing_is_zero():  # C050
    out = np.full((4, 4), nan, f32)
    product(np.zeros((4, 0), f32), np.zeros((0, 4), f32), out=out)
    np.testing.assert_array_equal(out, np.zeros((4, 4)))


def test_a_single_number_has_no_axis_to_reduce():  # C051
    with pytest.raises(redlang.ArgumentError, match="axis"):
        std.mean(np.array(3.0), axis=0)


def test_six_dimensions():  # C052
    @redlang.kernel
    def inner_mean(x: "a b c d e f") -> "a b":
        return mean[c, d, e, f](x)

    gives(inner_mean, (np.ones((4,) * 6, f32),), np.ones((4, 4)))


def test_nan_can_be_passed_over():  # C054
    @redlang.kernel
    def nanargmax(x: "n") -> "":
        return argmax[n](where(~isnan(x), x))

    gives(nanargmax, (np.array([nan, 2, nan, 1], f32),), 1)
    gives(nanargmax, (np.array([nan, nan], f32),), -1)


def test_there_is_no_scatter():  # C056
    text = 'def scatter(x: "n", i: "i32[n]") -> "n":\n    y[i] = x\n    return y\n'
    with pytest.raises(redlang.KernelSyntaxError):
        redlang.compile(text)


def test_all_axes_reduce_at_once():  # C057
    @redlang.kernel
    def everything(x: "a b c d e") -> "1":
        return sum[a, b, c, d, e](abs(x))

    x = np.random.default_rng(57).normal(size=(3, 3, 2, 3, 10)).astype(f32)
    gives(everything, (x,), [np.abs(x.astype(float)).sum()])


def test_softmax_over_an_outer_axis():  # C058
    x = np.random.default_rng(58).normal(size=(64, 2)).astype(f32)
    np.testing.assert_allclose(std.softmax(x, axis=0).sum(axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(std.softmax(x, axis=0), std.softmax(x.T, axis=1).T, rtol=1e-6)


def test_an_axis_that_is_not_there_is_named():  # C059
    with pytest.raises(redlang.ArgumentError, match=r"axis 1.*1 dimension"):
        std.softmax(np.zeros(3, f32), axis=1)


def test_a_repeated_index_takes_the_diagonal():  # C060
    @redlang.kernel
    def diagonal(x: "p q j") -> "i j":
        return x[i, i, j]

    gives(diagonal, (np.arange(12, dtype=f32).reshape(2, 2, 3),), [[0, 1, 2], [9, 10, 11]])


def test_a_result_without_dimensions_is_written_in_place():  # C061
    @redlang.kernel
    def dot(b: "n", c: "n") -> "":
        return sum[n](b * c)

    out = np.array(0.0, f32)
    result = dot(np.ones(3, f32), np.full(3, 2, f32), out=out)
    assert result is out
    assert out == 6


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_extents_must_agree_in_every_mode(mode):  # C062
    kernel = redlang.compile(
        'def product(a: "i j", b: "k j") -> "i k":\n    return sum[j](a * b)\n', fuse=mode
    )
    with pytest.raises(redlang.ArgumentError, match=r"(?s)'j'.*4.*6"):
        kernel(np.ones((2, 4), f32), np.ones((2, 6), f32))


def test_an_infinity_cast_to_an_integer_saturates():  # C063
    @redlang.kernel
    def counted(x: "n") -> "":
        return i32(sum[n](log(x)))

    gives(counted, (np.zeros(2, f32),), np.iinfo(np.int32).min)
