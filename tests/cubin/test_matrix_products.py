"""Plain products and what is around them, on matrix tiles: emulated, and compiled for Hopper."""

from dataclasses import replace

import numpy as np
import pytest

from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.device import compiling, simulated
from tests.cubin.test_matrices import compiled_all
from tests.cubin.test_matrix_calls import arrays, check

PLAIN = 'def f(a: "m k", b: "k n") -> "m n":\n    return sum[k](a * b)'
TURNED = 'def f(a: "m k", b: "n k") -> "m n":\n    return sum[k](a * b)'
BOTH_TURNED = 'def f(a: "k m", b: "n k") -> "m n":\n    return sum[k](a * b)'
ACROSS = 'def f(a: "k m", b: "k n") -> "m n":\n    return sum[k](a * b)'
TO_F32 = 'def f(a: "m k", b: "k n") -> "f32[m n]":\n    return sum[k](a * b)'
FOLLOWED = """
def f(a: "m k", b: "k n", bias: "n", scale: "f32[m]") -> "m n":
    return maximum(sum[k](a * b) * scale + bias, 0)
"""
SUMMED = """
def f(a: "m k", b: "k n", c: "m j", d: "j n") -> "m n":
    return sum[k](a * b) + sum[j](c * d)
"""
BATCHED = 'def f(a: "x m k", b: "x k n") -> "x m n":\n    return sum[k](a * b)'
SHARED = 'def f(a: "x m k", b: "k n") -> "x m n":\n    return sum[k](a * b)'
HEADS = 'def f(a: "m k", b: "k (h=2 e)") -> "h m e":\n    return sum[k](a * b)'
GATED = """
def f(a: "m k", b: "k n", c: "k n") -> "m n":
    u = sum[k](a * b)
    return u * tanh(u) * sum[k](a * c)
"""
WITH_A_FACTOR = """
def f(a: "m k", b: "k n", scale: "f32[m]") -> "m n":
    return sum[k](a * b * scale)
"""
NORMED = """
def f(x: "m k", g: "k", w: "k n") -> "m n":
    h = x * rsqrt(mean[k](x * x) + 1e-6) * g
    return sum[k](h * w)
"""
NORMED_TURNED = """
def f(x: "k m", g: "k", w: "n k") -> "m n":
    h = x * rsqrt(mean[k](x * x) + 1e-6) * g
    return sum[k](h * w)
"""

CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "plain": (PLAIN, {"a": (130, 96), "b": (96, 32)}),
    "odd sizes": (PLAIN, {"a": (37, 200), "b": (200, 40)}),
    "one row": (PLAIN, {"a": (1, 640), "b": (640, 64)}),
    "a wide result": (PLAIN, {"a": (64, 72), "b": (72, 264)}),
    "turned": (TURNED, {"a": (70, 104), "b": (33, 104)}),
    "both turned": (BOTH_TURNED, {"a": (104, 72), "b": (40, 104)}),
    "across": (ACROSS, {"a": (104, 136), "b": (104, 40)}),
    "to f32": (TO_F32, {"a": (70, 104), "b": (104, 40)}),
    "followed": (FOLLOWED, {"a": (70, 104), "b": (104, 48), "bias": (48,), "scale": (70,)}),
    "summed": (SUMMED, {"a": (70, 104), "b": (104, 48), "c": (70, 40), "d": (40, 48)}),
    "gated": (GATED, {"a": (40, 72), "b": (72, 48), "c": (72, 48)}),
    "with a factor": (WITH_A_FACTOR, {"a": (40, 72), "b": (72, 48), "scale": (40,)}),
    "batched": (BATCHED, {"a": (3, 40, 72), "b": (3, 72, 48)}),
    "shared": (SHARED, {"a": (3, 20, 72), "b": (72, 48)}),
    "heads": (HEADS, {"a": (70, 104), "b": (104, 64)}),
    "normed": (NORMED, {"x": (70, 200), "g": (200,), "w": (200, 64)}),
    "normed and turned": (NORMED_TURNED, {"x": (200, 72), "g": (200,), "w": (64, 200)}),
}


@pytest.mark.parametrize("name", CASES)
def test_products(name, gpu, rng):
    text, shapes = CASES[name]
    dtype = "f16" if name in ("followed", "both turned") else "bf16"
    given = arrays(rng, dtype, **shapes)
    if "scale" in given:
        given["scale"] = given["scale"].astype(np.float32)
    check(text, given, gpu, tolerance=0.02 if dtype == "bf16" else 0.004)


def test_a_product_of_a_product_that_lies_in_memory(gpu, rng):
    text = """
def f(q: "m d", k: "n d", v: "n e") -> "m e":
    return sum[d](q * sum[n](k * v))
"""
    check(text, arrays(rng, "bf16", q=(520, 40), k=(70, 40), v=(70, 24)), gpu)
    assert [path.path for path in gpu.paths] == ["wgmma", "wgmma"]


REFUSED: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "odd depth": (PLAIN, {"a": (36, 101), "b": (101, 16)}),
    "odd width": (PLAIN, {"a": (36, 104), "b": (104, 17)}),
    "all odd, turned": (TURNED, {"a": (37, 101), "b": (19, 101)}),
    "odd and across": (ACROSS, {"a": (51, 37), "b": (51, 19)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tensor_copies_cannot_read_takes_another_path(name, gpu, rng):
    text, shapes = REFUSED[name]
    check(text, arrays(rng, "bf16", **shapes), gpu)
    assert [path.path for path in gpu.paths] == ["mma"]


@pytest.mark.parametrize("name", ["followed", "summed", "gated", "shared"])
def test_older_devices(name, monkeypatch, rng):
    text, shapes = CASES[name]
    given = arrays(rng, "bf16", **shapes)
    if "scale" in given:
        given["scale"] = given["scale"].astype(np.float32)
    with simulated(monkeypatch, replace(DEFAULT_DEVICE, sms=2, capability="8.0")) as driver:
        check(text, given, driver)
        assert {path.path for path in driver.paths} == {"mma"}


@pytest.mark.parametrize("name", ["plain", "turned", "batched"])
def test_f32(name, gpu, rng):
    text, shapes = CASES[name]
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    check(text, given, gpu, tolerance=1e-5)
    assert {path.path for path in gpu.paths} == {"fma"}


def test_few_columns_are_left_to_threads(gpu, rng):
    given = arrays(rng, "bf16", a=(9000, 3), b=(9000, 3))
    check(ACROSS, given, gpu, matrix=False)


GRID = [
    (PLAIN, {"a": (4096, 4096), "b": (4096, 4096)}),
    (TURNED, {"a": (4096, 4096), "b": (4096, 4096)}),
    (ACROSS, {"a": (4096, 4096), "b": (4096, 4096)}),
    (PLAIN, {"a": (16, 4096), "b": (4096, 4096)}),
    (NORMED, {"x": (4096, 4096), "g": (4096,), "w": (4096, 4096)}),
]


@pytest.mark.parametrize(("text", "shapes"), GRID)
def test_kernels_keep_to_their_registers(text, shapes, monkeypatch):
    with compiling(monkeypatch) as driver:
        kernels = compiled_all(text, "bf16", driver, **shapes)
    kernel = next(k for k in kernels if "wgmma.mma_async" in k.ptx)
    assert kernel.spill_bytes == 0
    assert "cp.async.bulk.tensor" in kernel.ptx
