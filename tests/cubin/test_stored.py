"""Rows that lie in registers as they are stored, and are read part by part."""

import ml_dtypes
import numpy as np
import pytest

import redlang
from tests.cubin.device import compiling, simulated

BF16 = ml_dtypes.bfloat16

LAYER_NORM = """
def layer_norm(x: "m n", gain: "n", bias: "n") -> "m n":
    d = x - mean[n](x)
    return d * rsqrt(mean[n](d * d) + 1e-5) * gain + bias
"""
ADDED = """
def added(x: "m n", y: "m n", gain: "n") -> ("m n", "m n"):
    h = x + y
    return h, h * rsqrt(mean[n](h * h) + 1e-5) * gain
"""
QUANTISED = """
def quantised(x: "m n") -> ("i8[m n]", "f32[m]"):
    scale = max[n](abs(x)) / 127
    return i8(round(x / scale)), scale
"""
WEIGHTS = """
def weights(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""


@pytest.fixture
def gpu(monkeypatch):
    with simulated(monkeypatch) as driver:
        yield driver


def arguments(kernel, length, dtype, rng):
    names = [p.name for p in kernel.machine.caller.declared.parameters]
    shapes = [(6, length) if name in "xy" else (length,) for name in names]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("text", "length", "dtype", "rows"),
    [
        (LAYER_NORM, 1024, np.float16, 1),
        (LAYER_NORM, 1000, np.float32, 1),
        # More elements than are kept: they are made anew for each fold.
        (ADDED, 8200, np.float16, 2),
        (QUANTISED, 4100, np.float16, 1),
    ],
)
def test_rows_are_loaded_once_and_read_in_parts(text, length, dtype, rows, gpu, rng):
    kernel = redlang.compile(text.strip())
    given = arguments(kernel, length, dtype, rng)
    found, expected = kernel(*given), kernel.reference(*given)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected, strict=True):
        # A quotient close to a half may round either way.
        least = 1.01 if a.dtype == np.int8 else 2e-3
        right = np.asarray(b, np.float64)
        np.testing.assert_allclose(a.astype(np.float64), right, rtol=1e-3, atol=least)
    (code,) = gpu.compiled.values()
    assert code.text.source.count("_stored = load_") == rows


def test_rows_may_end_before_the_last_part(gpu, rng):
    kernel = redlang.compile(LAYER_NORM.strip())
    x, gain = rng.standard_normal((60, 300)), np.ones(300)
    given = [a.astype(BF16) for a in (x, gain, gain)]
    found = kernel(*given).astype(np.float64)
    np.testing.assert_allclose(found, kernel.reference(*given).astype(np.float64), atol=0.03)
    (code,) = gpu.compiled.values()
    assert "_stored = load_" in code.text.source


def test_what_is_costly_is_not_computed_again(gpu, rng):
    kernel = redlang.compile(WEIGHTS.strip())
    x = rng.standard_normal((6, 1024)).astype(np.float16)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), atol=1e-3)
    (code,) = gpu.compiled.values()
    assert "load_stored" not in code.text.source


def test_long_rows_take_few_registers(monkeypatch):
    with compiling(monkeypatch) as driver:
        shapes = ((4096, 16384), (16384,), (16384,))
        redlang.compile(LAYER_NORM.strip())(*(np.empty(shape, BF16) for shape in shapes))
    (kernel,) = driver.kernels
    assert kernel.registers * kernel.text.threads <= 65536 // 4
    assert kernel.spill_bytes == 0
    assert kernel.ptx.count("ld.global.nc.L1::no_allocate.L2::cache_hint.v4") == 8
