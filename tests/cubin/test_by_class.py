"""Sweeps whose elements go to classes: values by the simulator, and what is compiled for them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redlang
from redlang.bench.gpu import described
from redlang.runtime.cuda_compiler import cuda_arrays
from redlang.schedule import class_plans, search
from redlang.schedule.device import DEFAULT_DEVICE

SUMS = """
def sums(x: "n d", label: "i32[n]", w: "n", z: "c") -> ("c d", "c d", "c"):
    own = label == c
    return sum[n](where(own & (w > 0), x, 0)), max[n](where(own, x)), count[n](own) + i64(0 * z)
"""
MEANS = """
def means(x: "b h w d", label: "b h w", z: "c") -> "b c d":
    own = label == c
    return sum[h, w](where(own, x * x, 0)) / count[h, w](own) + 0 * z
"""
TABLE = """
def table(y: "i32[n]", p: "i32[n]", z: "a b") -> "a b":
    return count[n]((y == a) & (p == b)) + i64(0 * z)
"""


@pytest.fixture(autouse=True)
def first(monkeypatch):
    """Let plans by class come first, and no thread have all classes."""
    order = search._order

    def by_class_first(ranked):
        return (-1.0, 0) if ranked.candidate.family == "by class" else order(ranked)

    monkeypatch.setattr(search, "_order", by_class_first)
    monkeypatch.setattr("redlang.schedule.short_axes._is_shared", lambda *_: False)


@pytest.fixture
def plans():
    """Return a function from a kernel's text and its arguments to its plans by class."""

    def found(text, *arguments):
        work: Any = SimpleNamespace(kernel=redlang.compile(text))
        compiler, extents = described(work, list(arguments), DEFAULT_DEVICE)
        arrays = cuda_arrays(compiler.compiler.program, extents)
        forms = compiler.compiler.planner.forms(extents)
        choices = [compiler.classify(extents, arrays, form)[0] for form in forms]
        ranked = [r for choice in choices for options in choice.ranked for r in options]
        return [p for r in ranked for p in r.candidate.parts if p.classes is not None]

    return found


def families(kernel):
    (finder,) = kernel.machine._cuda_finders.values()
    return [ranked.candidate.family for ranked in finder.compiler.last_choice.best]


@pytest.mark.parametrize("chain", [256, 0])
def test_states_of_classes_are_those_of_the_reference(chain, gpu, monkeypatch):
    # Sums of f32 in f32, and in f64.
    monkeypatch.setattr(class_plans, "CHAIN", chain)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    x[7, 3], x[8, 2] = np.nan, np.inf
    # Labels that are no class, and classes that no element has.
    label = rng.integers(-2, 5, 300).astype(np.int32)
    given = x, label, rng.normal(size=300).astype(np.float32), np.zeros(9, np.float32)
    kernel = redlang.compile(SUMS)
    found = kernel(*given)
    for result, right in zip(found, kernel.reference(*given), strict=True):
        np.testing.assert_allclose(result, right, rtol=2e-6, atol=2e-6)
    assert "by class" in families(kernel)


def test_classes_may_be_floats_and_sweeps_several_axes(gpu):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1, 30, 70, 5)).astype(np.float32)
    label = rng.integers(0, 9, (1, 30, 70)).astype(np.float32)
    label[:, ::2, ::5] += 0.5
    kernel = redlang.compile(MEANS)
    found = kernel(x, label, np.zeros(6, np.float32))
    right = kernel.reference(x, label, np.zeros(6, np.float32))
    np.testing.assert_allclose(found, right, rtol=2e-6)
    assert "by class" in families(kernel)


def test_only_long_sums_of_f32_are_added_up_in_f64(plans):
    for n, wide in ((4096, False), (1 << 22, True)):
        found = plans(SUMS, ((n, 64), "f32"), ((n,), "i32"), ((n,), "f32"), ((32,), "f32"))
        assert {p.classes.wide for p in found if "d" in p.plan.innermost} == {wide}
        # Extremes and counts lose nothing.
        assert {p.classes.wide for p in found if not p.plan.innermost} == {False}


def test_classes_that_vary_along_columns_have_other_plans(gpu):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 40)).astype(np.float32)
    label = rng.integers(0, 6, (90, 40)).astype(np.int32)
    kernel = redlang.compile("""
def own(x: "n d", label: "i32[n d]", z: "c") -> "c d":
    return max[n](where(label == c, x)) + 0 * z
""")
    given = x, label, np.zeros(5, np.float32)
    np.testing.assert_array_equal(kernel(*given), kernel.reference(*given).astype(np.float32))
    assert "by class" not in families(kernel)


def test_a_table_of_two_classes_counts_pairs(gpu):
    rng = np.random.default_rng(4)
    y, p = rng.integers(0, 6, (2, 300)).astype(np.int32)
    kernel = redlang.compile(TABLE)
    found = kernel(y, p, np.zeros((5, 6), np.float32))
    np.testing.assert_array_equal(
        found, [[((y == a) & (p == b)).sum() for b in range(6)] for a in range(5)]
    )
    assert families(kernel)[0] == "by class"
