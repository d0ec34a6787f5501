"""Compiled kernels: the same values as the reference for every layout, and little per call."""

import statistics
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redlang
from redlang.ir.program import Dim
from redlang.ir.types import F32
from redlang.runtime import compiled
from redlang.runtime.interop import NUMPY
from redlang.runtime.launcher import Stored
from tests.with_torch import torch

f32 = np.float32

# Each combination of layouts is code of its own: a small kernel keeps that cheap.
SCALED = redlang.compile(
    'def scaled(x: "m n", gain: "n") -> "m n":\n    return x * gain + sum[n](x)\n'
)
GROUPED = redlang.compile(
    'def grouped(q: "b (g r) d", k: "b g d") -> "b (g r)":\n    return sum[d](q * k)\n'
)
BLOCKS = redlang.compile(
    'def blocks(x: "m (t g=8)") -> ("m t", "m (t g)"):\n'
    "    top = max[g](x)\n"
    "    return top, x - top\n"
)
COUNTED = redlang.compile(
    'def counted(x: "n", k: int, flag: bool) -> "n":\n    return where(flag, x * k, x)'
)


@st.composite
def layouts(draw, shape):
    """Draw an array of a shape that lies in memory in any way."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, -1])) for _ in shape]
    if draw(st.booleans()):
        steps = [2 * step for step in steps]
    padding = draw(st.integers(0, 2))
    whole = [abs(step) * extent + padding for step, extent in zip(steps, shape, strict=True)]
    base = np.random.default_rng(draw(st.integers(0, 99))).normal(size=[whole[i] for i in order])
    array = base.astype(f32).transpose(np.argsort(order))
    places = tuple(
        slice(None, step * extent, step) if step > 0 else slice(-1, -1 + step * extent, step)
        for step, extent in zip(steps, shape, strict=True)
    )
    return array[places]


@pytest.mark.parametrize("steps", [(1, 1), (40, 2)])
def test_an_array_without_elements_is_not_read_at_computed_places(steps):
    picked = redlang.compile(
        'def picked(x: "m n", i: "i64[m]") -> ("m", "m"):\n'
        "    return fill(x[m, i], -1), sum[n](fill(x[i, n], 7))\n"
    )
    # It has no address at all.
    x = torch.empty(99)[:0].as_strided((3, 0), steps)
    assert x.data_ptr() == 0
    places = torch.tensor([-1, 0, 5])
    for found, right in zip(picked(x, places), ([-1, -1, -1], [0, 0, 0]), strict=True):
        np.testing.assert_array_equal(found, right)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(0, 5), st.integers(0, 20))
def test_any_layout_gives_what_a_copy_gives(data, m, n):
    x, gain = data.draw(layouts((m, n))), np.ones(n, f32)
    assert x.shape == (m, n)
    expected = x + x.astype(float).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(SCALED(x, gain), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(0, 5), st.integers(0, 20))
def test_results_go_to_any_layout(data, m, n):
    out = data.draw(layouts((m, n)))
    x = np.random.default_rng(m).normal(size=(m, n)).astype(f32)
    expected = x + x.astype(float).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(SCALED(x, np.ones(n, f32), out=out), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_composite_dimensions_take_any_stride(data, groups, each):
    q, k = data.draw(layouts((2, groups * each, 5))), np.ones((2, groups, 5), f32)
    np.testing.assert_allclose(GROUPED(q, k), GROUPED.reference(q, k), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 8, 13, 16, 130])
def test_ragged_blocks_have_their_own_code(n):
    x = np.random.default_rng(n).normal(size=(3, n)).astype(f32)
    for array in (x, x[:, ::-1]):
        for result, expected in zip(BLOCKS(array), BLOCKS.reference(array), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)
    with pytest.raises(redlang.ArgumentError, match="dimension"):
        BLOCKS(x[0])


def test_numbers_of_each_kind_arrive():
    x = np.arange(4, dtype=f32)
    np.testing.assert_array_equal(COUNTED(x, -3, True), -3 * x)
    np.testing.assert_array_equal(COUNTED(x, -3, False), x)


def test_a_warm_call_costs_microseconds():
    x = np.ones((4, 64), f32)
    kernel = redlang.compile(
        'def softmax(x: "m n") -> "m n":\n    p = exp(x - max[n](x))\n    return p / sum[n](p)\n'
    )
    kernel(x)
    runs = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            kernel(x)
        runs.append((time.perf_counter() - start) / 100)
    # 25 us is the bar, 10 us the rule on a quiet core; a shared machine gets some room.
    assert min(runs) < 50e-6
    assert statistics.median(runs) < 200e-6


def test_runs_are_remembered_by_extents_within_a_bound(monkeypatch):
    monkeypatch.setattr(compiled, "KEPT_EXTENTS", 3)
    made = []

    def make(extents):
        made.append(extents["n"])
        return lambda *_: None

    runs = compiled._Runs(make, ("n",))
    for n in (1, 2, 3, 3, 2, 4, 4, 1):
        if runs.get((n,)) is None:
            runs.find((n,))
    assert made == [1, 2, 3, 4, 1]
    assert len(runs) == 3


def test_the_axis_of_adjacent_elements_is_the_innermost_of_its_dimension():
    def unit(dims, place):
        return compiled._unit_axis(Stored("x", "v0", dims, F32, NUMPY, False, place))

    dims = (Dim(("b",)), Dim(("g", "r")))
    assert unit(dims, 1) == "r"
    assert unit(dims, 0) == "b"
    assert unit(dims, None) is None
    assert unit((), None) is None
    assert unit((Dim(()),), 0) is None


def test_scratch_memory_is_aligned_kept_and_grown():
    memory, address = compiled._scratch(100)
    assert address % 64 == 0
    assert compiled._scratch(50) == (memory, address)
    _, larger = compiled._scratch(10_000)
    assert larger % 64 == 0
    assert compiled._scratch(0) == (None, 0)
    huge, _ = compiled._scratch(compiled.SCRATCH_KEPT + 1)
    assert compiled._scratch(10)[0] is not huge


@pytest.mark.parametrize("a", [5, 2**63 - 1, 2**63, 2**64 - 1, np.uint64(2**63 + 7)])
def test_a_number_of_64_bits_without_a_sign_arrives_whole(a):
    kernel = redlang.compile('def f(x: "u64[n]", a: "u64[]") -> "n": return maximum(x, a)')
    x = np.array([0, 9, 2**63 + 5], np.uint64)
    assert kernel(x, a).tolist() == [max(int(a), int(each)) for each in x]
