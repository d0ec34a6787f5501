"""Attention: alignment, windows, ragged batches, grouped heads, score functions."""

import numpy as np
import pytest

import redlang
from redlang import std
from tests.cases.judge import agrees, gives

inf, nan = np.inf, np.nan
f32 = np.float32


@redlang.kernel
def windowed(q: "m", k: "n", v: "n", left: int, right: int) -> ("m", "m"):
    """One head of one dimension, masked by a window around the aligned position."""
    s = where(std.window[m, n](left, right), q * k)
    return std.weighted[n](s, v), std.logsumexp[n](s)


@redlang.kernel
def visible(q: "m", k: "n") -> ("bool[m n]", "m"):
    return std.causal[m, n](), sum[n](where(std.causal[m, n](), q * k))


@redlang.kernel
def by_segment(
    q: "m d", k: "n d", v: "n e", segment_q: "i32[m]", segment_k: "i32[n]"
) -> ("m e", "m"):
    """A ragged batch as one array: a query sees the keys of its own segment."""
    s = where(segment_q == segment_k, sum[d](q * k) * rsqrt(size(d)))
    return std.weighted[n](s, v), std.logsumexp[n](s)


def alone(n):
    return np.zeros(n, f32)


def test_the_last_query_sees_the_last_key():  # C018
    seen, _ = visible(np.ones(2, f32), np.ones(5, f32))
    assert seen.tolist() == [[True] * 4 + [False], [True] * 5]
    gives(visible, (np.ones(2, f32), np.ones(5, f32)), (seen, [4.0, 5.0]))


def test_a_window_counts_the_keys_before_a_query():  # C021
    v = np.array([1, 2, 3, 4], f32)
    counts = np.log([1, 2, 2, 2])
    gives(windowed, (alone(4), alone(4), v, 1, 0), ([1, 1.5, 2.5, 3.5], counts))


def test_a_window_that_lies_outside_the_keys_sees_nothing():  # C022
    v = np.array([7, 8], f32)
    arguments = (alone(4), alone(2), v, 0, 0)
    gives(windowed, arguments, ([0, 0, 7, 8], [-inf, -inf, 0, 0]))


def test_a_window_longer_than_the_context_stays_causal():  # C023
    rng = np.random.default_rng(23)
    q, k, v = (rng.normal(size=7).astype(f32) for _ in range(3))
    unbounded = windowed(q, k, v, -1, 0)
    gives(windowed, (q, k, v, 4096, 0), unbounded, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 129, 1025])
def test_padding_never_enters_a_score_function(n):  # C024
    @redlang.kernel
    def biased(q: "m d", k: "n d", v: "n e") -> "m e":
        s = sum[d](q * k) + (m - n)
        return std.weighted[n](where(std.causal[m, n](), s), v)

    rng = np.random.default_rng(24)
    q, k, v = (rng.normal(size=(n, 8)).astype(f32) for _ in range(3))
    # Scores reach 1024, where one rounding is 6e-5.
    assert np.isfinite(agrees(biased, (q, k, v), rtol=1e-3, atol=1e-3)).all()


def segments(offsets):
    lengths = np.diff(offsets)
    return np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)


def test_a_ragged_batch_of_single_queries():  # C025
    rng = np.random.default_rng(25)
    q, k, v = (rng.normal(size=(n, 4)).astype(f32) for n in (2, 8, 8))
    groups = segments([0, 0, 1, 1, 2]), segments([0, 0, 3, 3, 8])
    o, lse = agrees(by_segment, (q, k, v, *groups), rtol=1e-5, atol=1e-6)
    for row, keys in ((0, slice(0, 3)), (1, slice(3, 8))):
        s = k[keys] @ q[row] / 2
        p = np.exp(s - s.max())
        np.testing.assert_allclose(o[row], p @ v[keys] / p.sum(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse[row], s.max() + np.log(p.sum()), rtol=1e-5)


def test_nothing_to_see_and_nobody_to_see_it():  # C026
    gives(windowed, (alone(3), alone(0), alone(0), -1, -1), (np.zeros(3), np.full(3, -inf)))
    o, lse = windowed(alone(0), alone(3), alone(3), -1, -1)
    assert o.shape == lse.shape == (0,)


@pytest.mark.parametrize("d", [1, 64, 128, 256])
def test_an_empty_segment_contributes_nothing(d):  # C027
    rng = np.random.default_rng(27)
    q, k, v = (rng.normal(size=(n, d)).astype(f32) for n in (3, 9, 9))
    groups = segments([0, 0, 3]), segments([0, 4, 9])
    o, lse = agrees(by_segment, (q, k, v, *groups), rtol=1e-4, atol=1e-5)
    k[:4], v[:4] = nan, nan
    again = by_segment(q, k, v, *groups)
    np.testing.assert_allclose(again[0], o, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(again[1], lse, rtol=1e-4, atol=1e-6)


def test_repeated_offsets_are_empty_segments():  # C028
    @redlang.kernel
    def segment_sums(x: "n", start: "i32[b]", stop: "i32[b]") -> "b":
        return sum[n](where((start <= n) & (n < stop), x))

    offsets = np.array([0, 0, 3, 3], np.int32)
    gives(segment_sums, (np.array([1, 2, 3], f32), offsets[:-1], offsets[1:]), [0, 6, 0])


@pytest.mark.parametrize(("heads", "groups"), [(48, 2), (40, 2), (28, 4), (12, 12)])
def test_a_head_reads_its_own_group(heads, groups):  # C030
    @redlang.kernel
    def grouped(q: "(g r) d", k: "g n d", v: "g n e") -> "(g r) e":
        return std.weighted[n](sum[d](q * k), v)

    q, k = np.ones((heads, 4), f32), np.ones((groups, 5, 4), f32)
    v = np.broadcast_to(np.arange(1, groups + 1, dtype=f32)[:, None, None], (groups, 5, 3))
    expected = np.repeat(np.arange(1, groups + 1), heads // groups)[:, None] * np.ones(3)
    gives(grouped, (q, k, v), expected)


def test_a_soft_cap_bends_large_scores():  # C031
    @redlang.kernel
    def capped(s: "n") -> "n":
        return 30 * tanh(s / 30)

    gives(capped, (np.array([100], f32),), [29.92374], rtol=1e-6)


def test_a_slope_weighs_near_keys_more():  # C031
    @redlang.kernel
    def sloped(q: "m", k: "n", slope: float) -> "m n":
        return fill(std.softmax[n](where(std.causal[m, n](), q * k + slope * (n - m))), 0)

    zeros = np.zeros(3, f32)
    last = sloped(zeros, zeros, 0.5)[-1]
    np.testing.assert_allclose(last, [0.18632, 0.30720, 0.50648], atol=1e-5)
    agrees(sloped, (zeros, zeros, 0.5))


def test_an_index_of_minus_one_is_no_entry():  # C032
    @redlang.kernel
    def sparse(s: "n", v: "n", index: "i32[j]") -> ("", ""):
        return std.weighted[j](s[index], v[index]), std.logsumexp[j](s[index])

    s, v = np.array([0.5, nan, 2], f32), np.array([3, nan, 7], f32)
    for index in ([2, -1], [2], [-1, 2, 99]):
        gives(sparse, (s, v, np.array(index, np.int32)), (7.0, 2.0))
    gives(sparse, (s, v, np.array([-1, -1], np.int32)), (0.0, -inf))
