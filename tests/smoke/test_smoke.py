"""The shortest way through everything: what must work on any supported Python and NumPy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16

import redlang
from redlang import std

ROOT = Path(__file__).parents[2]


@redlang.kernel
def attention(q: "h m d", k: "h n d", v: "h n e") -> "h m e":
    s = where(n <= m, sum[d](q * k) * rsqrt(size(d)))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)


@redlang.kernel
def moments(x: "m n") -> ("m", "m", "m"):
    mu = mean[n](x)
    return mu, mean[n]((x - mu) ** 2), argmax[n](x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16, np.int32])
def test_moments_in_every_kind_of_type(dtype):
    x = (np.random.default_rng(0).normal(size=(3, 70)) * 8).astype(dtype)
    mean, variance, index = moments(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean.astype(float), wide.mean(axis=1), rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(variance.astype(float), wide.var(axis=1), rtol=2e-2)
    np.testing.assert_array_equal(index, wide.argmax(axis=1))


def test_attention():
    q, k, v = np.random.default_rng(1).normal(size=(3, 2, 40, 16)).astype(np.float32)
    np.testing.assert_allclose(attention(q, k, v), attention.reference(q, k, v), atol=1e-5)
    assert len(attention.sweeps[0]) == 1


def test_the_library():
    x = np.random.default_rng(2).normal(size=(4, 9)).astype(np.float32)
    np.testing.assert_allclose(std.softmax(x).sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(std.softmax(x, axis=0).sum(axis=0), 1, rtol=1e-6)


def test_streams():
    x = np.random.default_rng(3).normal(size=(2, 100)).astype(np.float32)
    fold = std_variance.fold("n")
    for chunk in np.split(x, [10, 60], axis=1):
        fold.update(chunk)
    np.testing.assert_allclose(fold.result(), x.var(axis=1), rtol=1e-5)


@redlang.kernel
def std_variance(x: "m n") -> "m":
    return std.var[n](x)


def test_a_mistake_is_explained():
    with pytest.raises(redlang.AxisError, match="hint"):
        redlang.compile('def f(x: "n") -> "":\n    return sum[k](x)\n')(np.ones(3))


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_import_is_light():
    heavy = ("lark", "sympy", "numba", "llvmlite", "scipy", "torch")
    text = f"import sys, redlang; print([name for name in {heavy} if name in sys.modules])"
    done = python("-c", text)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_doctor_finds_nothing_wrong():
    done = python("-m", "redlang.cli", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPU: works" in done.stdout
