import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redlang
from redlang import std
from redlang.testing import assert_agrees, assert_folds, check, foldable_axes, inputs


@redlang.kernel
def variance(x: "m n") -> "m":
    return mean[n]((x - mean[n](x)) ** 2)


@redlang.kernel
def weighted(s: "m n", v: "n e") -> ("m e", "m"):
    return std.weighted[n](s, v), std.logsumexp[n](s)


@redlang.kernel
def best(x: "m n") -> ("m", "m"):
    return argmax[n](x), max[n](x)


@redlang.kernel
def blocks(x: "r (b l=4)", scale: float, shift: int) -> "r b":
    return sum[l](x) * scale + shift


@redlang.kernel
def quantised(x: "b (g r=32)", c: "i8[m (g r)]") -> "b m":
    return sum[g, r](x * c)


@redlang.kernel
def top(z: "t e") -> ("t j", "t j"):
    w, i = topk[e:j](std.softmax[e](z), 2)
    return w / sum[j](w), i


@redlang.kernel
def third(x: "h w", y: "h w") -> ("", "2"):
    v, _h, _w = topk[h, w](x, 2)
    return sum[h](y[h, 2]), v


@redlang.kernel
def skewness(x: "m n", w: "m n") -> "m":
    total = sum[n](w)
    mu = sum[n](w * x) / total
    m2 = sum[n](w * (x - mu) ** 2) / total
    m3 = sum[n](w * (x - mu) ** 3) / total
    return m3 / m2**1.5


@redlang.kernel
def share(x: "m n") -> ("m n", "m"):
    top = max[n](x)
    return (x - x) / (x - top), top


class Planted:
    """A kernel that gives something else than its reference."""

    def __init__(self, kernel, change):
        self.kernel = kernel
        self.change = change

    def __call__(self, **arguments):
        return self.change(self.kernel(**arguments))

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def __redlang__(self):
        return self.kernel.__redlang__()


def planted(change, kernel=variance) -> Any:
    return Planted(kernel, change)


@pytest.mark.parametrize(
    "kernel", [variance, weighted, best, blocks, top], ids=lambda k: k.__name__
)
def test_right_kernels_pass(kernel):
    check(kernel, examples=15)


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result * np.float32(1 + 1e-3),
        lambda result: np.where(np.isnan(result), 0, result),
        lambda result: np.where(result == 0, np.nan, result),
    ],
    ids=["wrong values", "hidden NaN", "new NaN"],
)
def test_planted_faults_are_found(change):
    with pytest.raises(AssertionError, match="the kernel gives a wrong result 0"):
        check(planted(change), examples=20, extents={"m": 2, "n": st.integers(1, 3)})


def test_kinds_of_what_is_not_finite_are_asked_for_where_they_are_promised():
    # Behind a spread of 0 or a sum of weights of 0 anything may come that is not finite.
    x = np.array([[0.1257, -0.1321, 0.6404], [0.1049, -0.5357, 0.3616]], np.float32)
    w = np.array([[0, 0, 1], [2, -2, 0]], np.float32)
    assert_agrees(planted(lambda r: np.where(np.isnan(r), -np.inf, r), skewness), {"x": x, "w": w})
    with pytest.raises(AssertionError, match="what is not finite"):
        assert_agrees(planted(np.nan_to_num, skewness), {"x": x, "w": w})
    # A quotient of elements under a finite maximum is NaN.
    with pytest.raises(AssertionError, match="places of NaN"):
        assert_agrees(
            planted(lambda r: (np.where(np.isnan(r[0]), np.inf, r[0]), r[1]), share), {"x": x}
        )


def test_the_search_for_a_small_example_ends(monkeypatch):
    monkeypatch.setitem(check.__globals__, "SHRINKING", 0.5)
    kernel = planted(lambda result: result + np.float32(1))
    start = time.monotonic()
    with pytest.raises(AssertionError, match="gives a wrong result 0"):
        check(kernel, examples=20)
    assert time.monotonic() - start < 60


def test_axes_that_fold():
    assert foldable_axes(variance) == ("n",)
    assert foldable_axes(weighted) == ("n",)


@settings(max_examples=5, database=None)
@given(inputs(weighted, extents={"n": 6}))
def test_inputs_agree_in_their_extents(arguments):
    assert arguments["s"].shape[1] == arguments["v"].shape[0] == 6
    assert arguments["s"].dtype == np.float32


@settings(max_examples=30, database=None, deadline=None)
@given(st.data())
def test_inputs_are_ones_that_the_kernel_takes(data):
    arguments = data.draw(inputs(quantised))
    assert arguments["x"].shape[1] == arguments["c"].shape[1]
    assert arguments["x"].shape[1] % 32 == 0
    assert data.draw(inputs(top))["z"].shape[1] >= 2
    assert data.draw(inputs(top, extents={"e": st.integers(0, 5)}))["z"].shape[1] >= 2
    shape = data.draw(inputs(third))["x"].shape
    assert shape[0] >= 2
    assert shape[1] >= 3


def test_single_laws_can_be_tried_alone():
    x = np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32)
    assert_agrees(variance, {"x": x})
    assert_folds(variance, "n", {"x": x}, (0.0, 0.5))
