"""Operands of 8 bits that become 16 bits in shared memory: emulated, and compiled for Hopper."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redlang
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import arrays, check, transposed

CACHE = """
def f(q: "b (g r) m d", k: "b g n d", v: "b g n e", s: "b g n", t: "b g n") -> "bf16[b (g r) m e]":
    x = sum[d](q * k) * s * rsqrt(size(d))
    p = exp(x - max[n](x))
    return sum[n](p * t * v) / sum[n](p)
"""
MASKED = CACHE.replace("rsqrt(size(d))\n", "rsqrt(size(d))\n    x = where(n < length[b], x)\n")
MASKED = MASKED.replace('t: "b g n")', 't: "b g n", length: "i32[b]")')
WEIGHTS = 'def f(x: "m k", w: "n k", s: "f32[n]") -> "m n":\n    return sum[k](x * w) * s\n'
KINDS = {"i8": np.int8, "u8": np.uint8, "f8e4m3": ml_dtypes.float8_e4m3fn}


def numbers(rng, kind, *shape):
    if kind.startswith("f8"):
        return rng.standard_normal(shape).astype(KINDS[kind])
    limits = np.iinfo(KINDS[kind])
    return rng.integers(limits.min, limits.max + 1, shape).astype(KINDS[kind])


def cache(rng, kind="i8", b=1, heads=8, groups=2, m=1, n=70, d=64, e=None, dtype="bf16"):
    scales = {name: rng.uniform(0.005, 0.02, (b, groups, n)).astype(np.float32) for name in "st"}
    return {
        **arrays(rng, dtype, q=(b, heads, m, d)),
        "k": numbers(rng, kind, b, groups, n, d),
        "v": numbers(rng, kind, b, groups, n, e or d),
        **scales,
    }


def text_of(kernel):
    """Return the text of the only kernel that a call runs, segments aside."""
    (finder,) = kernel.machine._cuda_finders.values()
    return "".join(made.text.source for made in finder.compiler.last.kernels)


SHAPES: dict[str, dict[str, Any]] = {
    "one query a head": {"heads": 2, "n": 200},
    "wide heads": {"d": 128, "n": 130},
    "odd heads": {"d": 80, "e": 48},
    "wider heads": {"d": 256, "e": 16, "n": 40},
    "two groups of rows": {"m": 130, "heads": 2, "b": 2},
    "unsigned": {"kind": "u8", "dtype": "f16"},
    "floats": {"kind": "f8e4m3", "dtype": "f16"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_caches_of_8_bits(name, gpu, rng):
    kernel = check(CACHE, cache(rng, **SHAPES[name]), gpu)
    assert "w.widened(" in text_of(kernel)


def test_keys_that_take_no_part(gpu, rng):
    given = cache(rng, b=2, n=150) | {"length": np.array([3, 101], np.int32)}
    assert "w.widened(" in text_of(check(MASKED, given, gpu))


def test_other_layouts(gpu, rng):
    given = cache(rng, n=96)
    given["k"] = transposed(given["k"], 0, 1, 3, 2)
    given["v"] = given["v"][..., ::-1, :][..., ::-1, :]
    assert "w.widened(" in text_of(check(CACHE, given, gpu))


@pytest.mark.parametrize(("kind", "layout"), [("i8", "n k"), ("u8", "k n"), ("f8e4m3", "k n")])
def test_weights(kind, layout, gpu, rng):
    text = WEIGHTS.replace('"n k"', f'"{layout}"')
    given = arrays(rng, "bf16", x=(130, 592)) | {"w": numbers(rng, kind, 80, 592)}
    given["s"] = rng.uniform(0.001, 0.02, 80).astype(np.float32)
    if layout == "k n":
        given["w"] = np.ascontiguousarray(given["w"].T)
    assert "w.widened(" in text_of(check(text, given, gpu, tolerance=4e-3))


def test_every_number_is_exact(gpu):
    every = np.tile(np.arange(-128, 128).astype(np.int8), (64, 1))
    text = 'def f(x: "m k", w: "k n") -> "f32[m n]":\n    return sum[k](x * w)\n'
    kernel = redlang.compile(text)
    found = kernel(np.eye(64, dtype=ml_dtypes.bfloat16), every)
    np.testing.assert_array_equal(found, every)
    assert "w.widened(" in text_of(kernel)


def test_floats_that_take_no_part_are_stored_first(gpu, rng):
    # A NaN among them would show: only 16 bits are checked.
    given = cache(rng, "f8e4m3", b=2, n=150) | {"length": np.array([3, 101], np.int32)}
    given["v"][0, :, 3:] = np.nan
    assert "w.widened(" not in text_of(check(MASKED, given, gpu))


def decoding(rows):
    q, k, s = (4, 16, rows, 128), (4, 16, 4096, 128), (4, 16, 4096)
    scales = [np.empty(s, np.float32)] * 2
    return [np.empty(q, ml_dtypes.bfloat16), *[np.empty(k, np.int8)] * 2, *scales]


def weights(rows, n=8192):
    x, w = np.empty((rows, n), ml_dtypes.bfloat16), np.empty((n, n), np.int8)
    return [x, w, np.empty(n, np.float32)]


# On an H200 each way is the faster one, µs: 71 for 169, 618 for 700; 44 for 52, 107 for 138.
@pytest.mark.parametrize(
    ("text", "given", "is_converted"),
    [
        (CACHE, decoding(128), True),
        (CACHE, decoding(2048), False),
        (WEIGHTS, weights(64), True),
        (WEIGHTS, weights(512), False),
    ],
    ids=["few queries", "many queries", "few rows", "many rows"],
)
def test_few_rows_read_what_is_converted(text, given, is_converted, monkeypatch):
    with compiling(monkeypatch) as driver:
        kernel = redlang.compile(text.strip(), {})
        kernel(*given)
    assert ("w.widened(" in text_of(kernel)) == is_converted
    assert any("wgmma.mma_async" in made.ptx for made in driver.kernels)
    assert all(made.spill_bytes == 0 for made in driver.kernels)
