"""Reductions over pairs that are no products, on matrix tiles: emulated, and compiled."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import redlang
from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.device import compiling, simulated
from tests.long_forms import long

BF16 = ml_dtypes.bfloat16
NEAREST = (
    'def f(x: "m d", c: "k d") -> ("m", "m"):\n    s = {}\n    return argmin[k](s), min[k](s)\n'
)
SQUARES = NEAREST.format("sum[d]((x - c) ** 2)")
WEIGHTED = """
def f(x: "m d", c: "k d", v: "k d", w: "k") -> "m":
    s = log(w) - 0.5 * sum[d]((x - c) ** 2 * v - log(v))
    return log(sum[k](exp(s - max[k](s)))) + max[k](s)
"""
MEANS = """
def f(x: "b (g r) m d", y: "b g n d", v: "b g n e") -> "b (g r) m e":
    s = where(n <= m + 30, -0.5 * sum[d](abs(x - y)))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
DISTANCES = 'def f(x: "m d", c: "k d") -> "m k":\n    return sum[d](abs(x - c)) + max[d](x * c)\n'
# Text, shapes, type, kind of products beside pairs.
KERNELS: dict[str, tuple[str, dict[str, tuple[int, ...]], type[np.generic], str]] = {
    "squares": (SQUARES, {"x": (70, 32), "c": (100, 32)}, np.float32, "fma"),
    "ragged": (SQUARES, {"x": (133, 13), "c": (70, 13)}, BF16, "fma"),
    "largest": (NEAREST.format("max[d](x + c)"), {"x": (40, 13), "c": (35, 13)}, np.float32, "fma"),
    "smallest": (NEAREST.format("min[d](x + c)"), {"x": (40, 9), "c": (35, 9)}, np.float16, "fma"),
    "counted": (
        NEAREST.format("sum[d](where(x >= c, 1.0, 0.0))"),
        {"x": (40, 20), "c": (35, 20)},
        np.float32,
        "fma",
    ),
    "distances": (DISTANCES, {"x": (40, 75), "c": (35, 75)}, np.float32, "fma"),
    "distances and products": (
        DISTANCES.replace("max[d]", "sum[d]"),
        {"x": (40, 75), "c": (35, 75)},
        BF16,
        "mma",
    ),
    "longer than a unit holds": (SQUARES, {"x": (20, 300), "c": (35, 300)}, np.float32, "fma"),
    "weighted": (
        WEIGHTED,
        {"x": (70, 30), "c": (65, 30), "v": (65, 30), "w": (65,)},
        np.float32,
        "fma",
    ),
    "means": (MEANS, {"x": (1, 4, 40, 36), "y": (1, 2, 90, 36), "v": (1, 2, 90, 40)}, BF16, "mma"),
    "exact means": (
        MEANS,
        {"x": (1, 4, 40, 36), "y": (1, 2, 90, 36), "v": (1, 2, 90, 40)},
        np.float32,
        "fma",
    ),
}


def called(text, given, unit, monkeypatch):
    """Return the results of a call on matrix tiles, and the expected ones."""
    with simulated(monkeypatch, replace(DEFAULT_DEVICE, sms=2)) as driver:
        kernel = redlang.compile(text.strip(), {})
        results = kernel(**given), kernel.reference(**given)
    assert "w.pairs(" in driver.paths[0].source
    assert driver.paths[0].path == unit
    return [found if isinstance(found, tuple) else (found,) for found in results]


def compare(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        if one.dtype == np.int64:
            np.testing.assert_array_equal(one, other)
        else:
            one, other = one.astype(np.float64), other.astype(np.float64)
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", KERNELS)
def test_values(name, monkeypatch, rng):
    text, shapes, dtype, unit = KERNELS[name]
    given = {n: rng.standard_normal(shape).astype(dtype) for n, shape in shapes.items()}
    if name == "weighted":
        given |= {n: np.exp(given[n]) for n in "vw"}
    tolerance = {np.float32: 1e-5, np.float16: 2e-3, BF16: 2e-2}[dtype]
    found, expected = called(text, given, unit, monkeypatch)
    compare(found, expected, tolerance)


def test_distances_far_from_the_origin_keep_their_digits(monkeypatch, rng):
    given = {n: rng.standard_normal((40, 20)).astype(np.float32) + 3000 for n in "xc"}
    found, expected = called(SQUARES, given, "fma", monkeypatch)
    compare(found, expected, 1e-5)


@pytest.mark.parametrize("name", ["squares", "largest"])
def test_nan_shows(name, monkeypatch, rng):
    given = {n: rng.standard_normal((40, 20)).astype(np.float32) for n in "xc"}
    given["x"][3, 5] = given["c"][7, 2] = np.nan
    found, expected = called(KERNELS[name][0], given, "fma", monkeypatch)
    compare(found, expected, 1e-5)
    assert (found[0] == np.where(np.arange(40) == 3, 0, 7)).all()


@pytest.mark.parametrize(
    ("text", "shapes", "unit"),
    [
        (SQUARES, {"x": (65536, 32), "c": (256, 32)}, "fma"),
        long(MEANS, {"x": (1, 8, 4096, 64), "y": (1, 2, 4096, 64), "v": (1, 2, 4096, 64)}, "mma"),
    ],
)
def test_two_instructions_a_pair(text, shapes, unit, monkeypatch):
    with compiling(monkeypatch) as driver:
        dtype = BF16 if unit == "mma" else np.float32
        redlang.compile(text.strip(), {})(**{n: np.empty(s, dtype) for n, s in shapes.items()})
    kernel = driver.kernels[0]
    assert kernel.text.path == unit
    assert kernel.spill_bytes == 0
    # Eight rows by eight columns, eight elements of the reduced axis.
    assert kernel.ptx.count("sub.f32") >= 512
