"""Products of integers of 8 bits: sums are exact, on the tensor core where that reads them."""

import ml_dtypes
import numpy as np
import pytest

import redlang
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import check

SUMS = 'def f(x: "m k", w: "n k") -> "m n":\n    return sum[k](x * w)\n'
SCALED = """
def f(x: "m k", w: "n k", a: "f32[m]", s: "f32[n]") -> "bf16[m n]":
    return {} * a * s
"""
ATTENTION = """
def f(q: "m d", k: "n d", v: "n e", a: "f32[m]", s: "f32[n]") -> "bf16[m e]":
    x = sum[d](q * k) * a * s
    p = exp(x - max[n](x))
    return sum[n](p * v) / sum[n](p)
"""


def whole(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def launched(driver):
    return [path.path for path in driver.paths]


@pytest.mark.parametrize("dtypes", [(np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8)])
def test_sums_are_exact(dtypes, gpu, rng):
    x, w = (whole(rng, dtype, rows, 272) for dtype, rows in zip(dtypes, (70, 40), strict=True))
    x[0], w[0] = (limit.min or limit.max for limit in map(np.iinfo, dtypes))
    found = redlang.compile(SUMS)(x, w)
    np.testing.assert_array_equal(found, x.astype(np.int64) @ w.astype(np.int64).T)
    assert launched(gpu) == ["wgmma"]


@pytest.mark.parametrize(
    ("strided", "shape"),
    [(False, (40, 24, 100)), (True, (24, 16, 272)), (False, (2, 3, (1 << 15) + 16))],
    ids=["rows of odd lengths", "columns adjacent", "sums beyond 32 bits"],
)
def test_what_tensor_cores_do_not_read_is_exact_too(strided, shape, gpu, rng):
    m, n, k = shape
    x, w = whole(rng, np.int8, m, k), whole(rng, np.int8, n, k)
    given = np.asfortranarray(w) if strided else w
    found = redlang.compile(SUMS)(x, given)
    np.testing.assert_array_equal(found, x.astype(np.int64) @ w.astype(np.int64).T)
    assert launched(gpu) == []


WAYS = {
    "a sum of integers": ("f32(sum[k](x * w))", "n k", 1),
    "of wider integers": ("f32(sum[k](i32(x) * i16(w)))", "n k", 1),
    "of floats that are integers": ("sum[k](f32(x) * f32(w))", "n k", 1),
    "a scale inside": ("sum[k](x * (f32(w) * s)) / s", "n k", 1),
    "columns adjacent": ("f32(sum[k](x * w))", "k n", 2),
}


@pytest.mark.parametrize("name", WAYS)
def test_scaled(name, gpu, rng):
    text, layout, kernels = WAYS[name]
    x, w = (
        whole(rng, np.int8, 70, 272),
        whole(rng, np.int8, *(40, 272)[:: 1 if kernels == 1 else -1]),
    )
    a, s = (rng.uniform(0.001, 0.01, rows).astype(np.float32) for rows in (70, 40))
    given = {"x": x, "w": w, "a": a, "s": s}
    kernel = check(SCALED.format(text).replace('"n k"', f'"{layout}"'), given, gpu, tolerance=4e-3)
    assert launched(gpu) == ["wgmma"]
    (finder,) = kernel.machine._cuda_finders.values()
    assert len(finder.compiler.last.kernels) == kernels
    assert 'w.Product("i8 i8", ' in finder.compiler.last.kernels[-1].text.source


def test_scores_of_integers(gpu, rng):
    given = {"q": whole(rng, np.int8, 20, 32), "k": whole(rng, np.int8, 70, 32)}
    given["v"] = rng.standard_normal((70, 24)).astype(ml_dtypes.bfloat16)
    given |= {n: rng.uniform(0.001, 0.02, rows).astype("f4") for n, rows in (("a", 20), ("s", 70))}
    check(ATTENTION, given, gpu, tolerance=0.01)
    assert launched(gpu) == ["wgmma"]


def test_kernels_keep_to_their_registers(monkeypatch):
    x = np.zeros((4096, 4096), np.int8)
    scales = np.zeros(4096, np.float32)
    with compiling(monkeypatch) as driver:
        redlang.compile(SCALED.format("f32(sum[k](x * w))").strip())(x, x, scales, scales)
    (kernel,) = driver.kernels
    assert "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8" in kernel.ptx
    assert kernel.spill_bytes == 0
