"""Calls that an earlier process has left on disk run without plans, until something is measured."""

import numpy as np
import pytest

import redlang
from redlang.runtime import cuda_compiler
from redlang.runtime.cache import disk
from tests.cubin.device import simulated

TEXT = """\
def f(x: "m n", scale: float) -> ("m n", "m"):
    p = exp(x - max[n](x))
    return p / sum[n](p) * scale, mean[n](p)
"""
X = np.random.default_rng(5).standard_normal((5, 300)).astype(np.float32)


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    with simulated(monkeypatch) as driver:
        monkeypatch.setenv("REDLANG_CACHE_DIR", str(tmp_path))
        yield driver


@pytest.fixture
def without_plans(monkeypatch):
    """Let a kernel that asks for a plan fail."""

    def refuse(*arguments):
        raise AssertionError("a plan is asked for")

    def within(call):
        with monkeypatch.context() as patch:
            patch.setattr(cuda_compiler.CudaCompiler, "__init__", refuse)
            return call()

    return within


def test_a_later_process_needs_no_plan(gpu, without_plans):
    first = redlang.compile(TEXT)
    expected = first(X, 2.0), first(X[:, ::2], 1.0)
    later = redlang.compile(TEXT)
    found = without_plans(lambda: (later(X, 2.0), later(X[:, ::2], 1.0)))
    np.testing.assert_array_equal(found[0][0], expected[0][0])
    np.testing.assert_array_equal(found[1][1], expected[1][1])
    assert later.cache_info().loaded == first.cache_info().compilations
    assert later.cache_info().compilations == 0
    # What explains the call makes its plan then.
    assert later.source("cuda") == first.source("cuda")
    with pytest.raises(AssertionError, match="a plan is asked for"):
        without_plans(lambda: redlang.compile(TEXT)(X[:3], 2.0))


MOMENT = """\
def f(q: "m d", k: "n d", v: "n e") -> "f32[m e]":
    x = sum[d](q * k)
    p = exp(x - max[n](x))
    return sum[n](p * v * v) / sum[n](p)
"""


def test_stored_operands_are_recalled_with_what_reads_them(gpu, without_plans, rng):
    q, k, v = (rng.standard_normal((rows, 32)).astype(np.float16) for rows in (70, 90, 90))
    expected = redlang.compile(MOMENT)(q, k, v)
    later = redlang.compile(MOMENT)
    found = without_plans(lambda: later(q, k, v))
    np.testing.assert_array_equal(found, expected)
    a, b, c = (x.astype(np.float64) for x in (q, k, v))
    p = np.exp(a @ b.T)
    moment = p @ c**2 / p.sum(1, keepdims=True)
    np.testing.assert_allclose(found, moment, rtol=2e-3, atol=2e-3)
    (finder,) = later.machine._cuda_finders.values()
    plan, loops = finder.compiler.shown({"m": 70, "d": 32, "n": 90, "e": 32})
    assert "stores    f16 for products, which read arrays: v[n, e] * v[n, e] / " in plan
    # Each kernel's figures stand with its own nest.
    assert plan.count("  compiled  ") == 3
    # A kernel may begin while the one before it ends: no load takes the read-only path.
    assert finder.compiler.last is not None
    source = finder.compiler.last.kernels[-1].text.source
    loads = [line for line in source.splitlines() if line.startswith("load_result_")]
    assert loads
    assert all('hint="plain"' in line for line in loads)
    # The range of squares, the squares, what reads them.
    assert [len(kernel.grid) > 0 for kernel in loops.kernels] == [False, True, True]


def test_what_is_measured_since_is_looked_at(gpu, without_plans):
    first = redlang.compile(TEXT)
    first(X, 2.0)
    (finder,) = first.machine._cuda_finders.values()
    compiler = finder.compiler
    assert compiler.last_choice is not None
    disk().store(compiler.record_key(compiler.last_choice), b"something")
    with pytest.raises(AssertionError, match="a plan is asked for"):
        without_plans(lambda: redlang.compile(TEXT)(X, 2.0))
    redlang.compile(TEXT)(X, 2.0)
    without_plans(lambda: redlang.compile(TEXT)(X, 2.0))
