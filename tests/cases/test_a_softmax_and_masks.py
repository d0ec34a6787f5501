"""Softmax, online merges and masks: what has gone wrong elsewhere, and its right value."""

import numpy as np
import pytest

import redlang
from redlang import std
from tests.cases.judge import agrees, gives

inf, nan = np.inf, np.nan
f32 = np.float32


@redlang.kernel
def weighted(s: "m n", v: "n") -> ("m", "m"):
    """Weights from scores, applied to values; and the log of their sum."""
    return std.weighted[n](s, v), std.logsumexp[n](s)


@redlang.kernel
def masked(scores: "m n", v: "n", seen: "bool[m n]") -> ("m", "m"):
    s = where(seen, scores)
    return std.weighted[n](s, v), std.logsumexp[n](s)


@redlang.kernel
def softmax(x: "m n") -> "m n":
    return std.softmax[n](x)


@redlang.kernel
def plain(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)


@redlang.kernel
def scaled(x: "m n", scale: float) -> "m n":
    return std.softmax[n](x * scale)


@redlang.kernel
def divided(x: "m n", divisor: float) -> "m n":
    return std.softmax[n](x / divisor)


@redlang.kernel
def merged(o: "p", lse: "p") -> ("", ""):
    """Partial results over different keys, joined by their log-sum-exp."""
    return sum[p](std.softmax[p](lse) * o), std.logsumexp[p](lse)


def test_a_row_of_minus_infinities_weighs_nothing():  # C001
    gives(weighted, (np.full((1, 4), -inf, f32), np.ones(4, f32)), ([0.0], [-inf]))


def test_a_row_with_everything_masked_weighs_nothing():  # C001
    scores, seen = np.zeros((2, 4), f32), np.array([[0, 0, 0, 0], [1, 1, 0, 0]], bool)
    gives(masked, (scores, np.ones(4, f32), seen), ([0.0, 1.0], [-inf, np.log(2)]))


def test_a_mask_of_the_smallest_float_may_overflow_to_minus_infinity():  # C002
    smallest = np.finfo(f32).min
    with np.errstate(over="ignore"):
        scores = np.stack([np.full(3, -1e32, f32) + smallest, np.zeros(3, f32) + smallest])
    gives(softmax, (scores,), [[0, 0, 0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("before", [1, 7, 64, 1000, 5000])
def test_a_first_tile_of_minus_infinities_is_neutral(before):  # C003
    x = np.array([[-inf] * before + [1.0]], f32)
    expected = np.zeros_like(x)
    expected[0, -1] = 1
    gives(softmax, (x,), expected)
    gives(weighted, (x, np.arange(before + 1, dtype=f32)), ([before], [1.0]))


def test_merging_empty_parts_gives_an_empty_part():  # C004
    gives(merged, (np.zeros(2, f32), np.full(2, -inf, f32)), (0.0, -inf))


def test_merging_with_an_empty_part_changes_no_bit():  # C004
    value, score = f32(1.2345678), f32(-3.4567891)
    o, lse = merged(np.array([0, value], f32), np.array([-inf, score], f32))
    assert o == value
    assert lse == score


def test_no_keys_publish_minus_infinity():  # C005
    o, lse = weighted(np.zeros((1, 0), f32), np.zeros(0, f32))
    gives(weighted, (np.zeros((1, 0), f32), np.zeros(0, f32)), ([0.0], [-inf]))
    joined = np.array([o[0], 3], f32), np.array([lse[0], 0], f32)
    gives(merged, joined, (3.0, 0.0))


@pytest.mark.parametrize("hidden", [nan, inf, -inf])
def test_what_a_mask_hides_never_shows(hidden):  # C007
    scores, seen = np.zeros((1, 2), f32), np.array([[True, False]])
    gives(masked, (scores, np.array([2, hidden], f32), seen), ([2.0], [0.0]))
    gives(masked, (np.array([[0, hidden]], f32), np.array([2, 5], f32), seen), ([2.0], [0.0]))


@pytest.mark.parametrize("kernel", [softmax, plain], ids=["std", "plain"])
def test_softmax_of_plus_infinity_is_nan(kernel):  # C008
    gives(kernel, (np.array([[0, inf]], f32),), [[nan, nan]])


def test_products_that_overflow_are_not_moved_past_the_maximum():  # C009
    x = np.array([[-1, 1, 1]], f32)
    gives(scaled, (x, 1e39), [[nan, nan, nan]], precision="declared", kinds=False)


def test_a_negative_scale_stays_inside_the_maximum():  # C010
    x = np.array([[1, 2, 3]], f32)
    gives(scaled, (x, -1e14), [[1, 0, 0]])
    gives(divided, (x, -0.0001), [[1, 0, 0]], atol=1e-30)


def test_the_largest_element_has_weight_one_before_normalising():  # C011
    @redlang.kernel
    def unnormalised(x: "m n") -> "m n":
        y = x / 1e-6
        return exp(y - max[n](y))

    x = np.random.default_rng(11).normal(size=(5, 8)).astype(f32)
    assert (unnormalised(x).max(axis=1) == 1).all()
    np.testing.assert_allclose(divided(x, 1e-6).sum(axis=1), 1, rtol=1e-6)


def test_padding_between_rows_is_never_read():  # C012
    buffer = np.full((4, 552), nan, f32)
    buffer[:, :549] = np.random.default_rng(12).normal(size=(4, 549))
    gives(softmax, (buffer[:, :549],), softmax(buffer[:, :549].copy()))


def test_one_long_row_is_still_one_pass():  # C013
    x = np.random.default_rng(13).normal(size=(1, 1_000_003)).astype(f32)
    agrees(weighted, (x, x[0]), rtol=1e-6, atol=1e-6)
    assert len(weighted.sweeps[0]) == 1


def test_log_sum_exp_is_natural():  # C014
    gives(weighted, (np.zeros((1, 2), f32), np.ones(2, f32)), ([1.0], [np.log(2)]))


@pytest.mark.parametrize(("sink", "expected"), [(0.0, 4 / 3), (-inf, 2.0)])
def test_a_sink_adds_to_the_denominator_only(sink, expected):  # C015
    @redlang.kernel
    def with_sink(s: "n", v: "n", sink: "f32[]") -> "":
        top = maximum(max[n](s), sink)
        p = exp(s - top)
        return sum[n](p * v) / (sum[n](p) + exp(sink - top))

    gives(with_sink, (np.zeros(2, f32), np.array([1, 3], f32), f32(sink)), expected)


def test_small_weights_normalise_without_a_floor():  # C017
    @redlang.kernel
    def normalised(x: "n") -> "n":
        w = exp(x)
        return w / sum[n](w)

    gives(normalised, (np.array([-20, -20], f32),), [0.5, 0.5])
