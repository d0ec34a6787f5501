"""Operands of 8 bits that become 16 bits in shared memory: emulated, and compiled for Hopper."""

import ml_dtypes
import numpy as np
import pytest

import redlang
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import TYPES, arrays, check, transposed

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


SHAPES = {
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["n k", "k n"])
def test_weights(kind, layout, gpu, rng):
    given = arrays(rng, "bf16", x=(40, 272)) | {"w": numbers(rng, kind, 80, 272)}
    given["s"] = rng.uniform(0.001, 0.02, 80).astype(np.float32)
    if layout == "k n":
        given["w"] = transposed(given["w"], 1, 0)
    check(WEIGHTS, given, gpu, tolerance=4e-3)
