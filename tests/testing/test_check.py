import builtins
import re
import subprocess
import sys
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
    check(kernel, examples=8)


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


@redlang.kernel
def normed(q: "m d", k: "n d", v: "n e", g: "d") -> "m e":
    kn = k * rsqrt(mean[d](k * k) + 1e-6) * g
    qn = q * rsqrt(mean[d](q * q) + 1e-6) * g
    return std.weighted[n](sum[d](qn * kn), v)


@redlang.kernel
def grouped(x: "i (b l)", s: "j b", z: "i8[j b]", y: "l") -> "i j":
    return sum[b, l](x * s * y - z)


@redlang.kernel
def ramp(x: "m", width: int) -> "m j":
    j = axis(width)
    return x * j


@redlang.kernel
def twice(x: "m", width: int) -> "m j":
    j = axis(2 * width)
    return x * j


def test_axes_that_share_a_sweep_with_the_folded_one():
    check(normed, examples=3)


def test_an_axis_that_is_part_of_a_dimension_is_cut_as_one():
    assert foldable_axes(grouped) == ("b", "l")
    check(grouped, examples=4)
    rng = np.random.default_rng(0)
    x, s, y = (rng.normal(size=n).astype(np.float32) for n in ((2, 12), (3, 4), 3))
    z = np.ones((3, 4), np.int8)
    for axis in ("b", "l"):
        assert_folds(grouped, axis, {"x": x, "s": s, "z": z, "y": y}, (0.3, 0.7))


@settings(max_examples=20, database=None, deadline=None)
@given(st.data())
def test_an_integer_that_decides_an_extent_is_one(data):
    assert data.draw(inputs(ramp))["width"] >= 1
    assert data.draw(inputs(ramp, extents={"width": 3}))["width"] == 3
    assert data.draw(inputs(ramp, extents={"j": st.just(4)}))["width"] == 4
    with pytest.raises(redlang.ArgumentError, match=r"extent of j is computed from width"):
        inputs(twice, extents={"j": 4})


def test_extents_that_are_computed_are_drawn():
    check(ramp, examples=10)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda: check(variance, extents={"k": 3}), r"no axis 'k'.*\n.*it has m, n"),
        (lambda: check(variance, extents={"n": -1}), r"gives n as -1\n.*from 0 on"),
        (lambda: check(variance, dtype="float16"), r"dtype='float16' .*\n.*redlang writes f16"),
        (lambda: check(variance, dtype="q4"), r"dtype='q4' .*\n.*element types are bool"),
        (lambda: check(vars(builtins)["len"]), r"len is no kernel\n.*put @redlang.kernel above"),
        (lambda: inputs(std.softmax), r"softmax is no kernel"),
    ],
)
def test_says_what_is_wrong_with_its_arguments(start, words):
    with pytest.raises(redlang.ArgumentError, match=words):
        start()


def test_a_failure_is_told_in_a_few_lines_and_can_be_repeated():
    kernel = planted(lambda result: result + np.float32(1))

    def failure(**options):
        with pytest.raises(AssertionError) as caught:
            check(kernel, examples=5, extents={"m": 5, "n": 33}, special=False, **options)
        return caught.value

    error = failure()
    (note,) = error.__notes__
    assert "x = f32 (5, 33) of numpy\n" in note
    assert len(f"{error}\n{note}") < 500
    seed = int(re.search(r"check\(variance, seed=(\d+)\)", note)[1])
    x = error.arguments["x"]
    np.testing.assert_array_equal(failure(seed=seed).arguments["x"], x)
    with pytest.raises(AssertionError, match=r"in 5 of 5 elements; at \([0-4],\): "):
        assert_agrees(kernel, {"x": x})


def test_without_hypothesis_it_says_what_to_install():
    program = (
        "import sys, importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'hypothesis' else find(name)\n"
        "import redlang.testing"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert 'hint: pip install "redlang[test]"' in run.stderr
