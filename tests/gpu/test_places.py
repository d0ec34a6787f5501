"""Elements near others, elements of tables, stages of fewer axes, and words: at awkward shapes."""

import numpy as np
import pytest

from tests.gpu.calling import EPSILON, judge, kernel, on_device
from tests.gpu.test_corpus import layouts
from tests.kernels import WEIGHTED

pytestmark = pytest.mark.gpu

CHANGES = """
def changes(x: "m n") -> ("m", "m", "m n"):
    ahead = x[m, n + 1] - x
    return count[n]((x > 0) != (x[m, n + 1] > 0)), mean[n](ahead * ahead), fill(ahead, 7) + 1
"""
BOTH = """
def both(x: "m n") -> ("m", "m"):
    return sum[n](x[m, n + 2] - 2 * x + x[m, n - 2]), max[n](x[m, n - 3] * x)
"""
IN_TIME = """
def in_time(x: "b t c") -> ("b c", "b c"):
    return mean[t]((x[b, t + 1, c] - x) ** 2), sum[t](x[b, t - 5, c])
"""
SQUARES = """
def squares(x: "b h w") -> "b":
    return sum[h, w](abs(x[b, h + 1, w] - x) + abs(x[b, h, w - 1] - x[b, h - 1, w + 1]))
"""
CORNERS = """
def corners(x: "m n") -> "m n":
    y = fill(x[m, minimum(n + 1, size(n) - 1)] + x[m, maximum(n - 2, 0)], 0)
    return y / sum[n](abs(y))
"""
FAR = """
def far(x: "m n") -> "m":
    return sum[n](fill(x[m, n + 1000], 1) * x)
"""
NEAREST = """
def nearest(x: "v d", near: "i64[m l]") -> ("m d", "m"):
    return max[l](fill(x[near, d], -9)), sum[l, d](fill(x[near, d], 1))
"""
PAIRS = """
def pairs(u: "a d", v: "b d", i: "i64[m]", j: "i64[m]") -> "m":
    return sigmoid(sum[d](fill(u[i, d], 0) * fill(v[j, d], 0)))
"""
RANGES = """
def ranges(x: "i32[m n]") -> ("m", "m", "m"):
    return max[n](x), min[n](x), max[n](where(x > 5, x))
"""
PIXELS = """
def pixels(x: "b h w c") -> ("b c", "b c"):
    y = f32(x)
    return mean[h, w](y), max[h, w](y)
"""

SHAPES = [(3, 1), (5, 2), (1, 5), (7, 64), (300, 257), (33, 1003), (2, 100001), (3000, 31)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("text", [CHANGES, BOTH, FAR], ids=["changes", "both", "far"])
def test_neighbours_in_rows(text, dtype, rng):
    for shape in SHAPES:
        x = on_device(rng.standard_normal(shape).astype(np.float32), dtype)
        judge(kernel(text), x, tolerance=16 * EPSILON[dtype])


def test_neighbours_under_any_strides(rng):
    for width in (64, 1003):
        x = on_device(rng.standard_normal((9, width)).astype(np.float32))
        for _, view in layouts(x):
            for text in (CHANGES, BOTH):
                judge(kernel(text), view, tolerance=1e-4)


@pytest.mark.parametrize("shape", [(3, 1, 5), (2, 501, 320), (5, 1000, 3), (90, 12, 33), (1, 9, 1)])
def test_neighbours_in_columns_and_squares(shape, rng):
    x = on_device(rng.standard_normal(shape).astype(np.float32))
    for text in (IN_TIME, SQUARES):
        judge(kernel(text), x, tolerance=1e-4)


def test_places_held_inside(rng):
    for shape in SHAPES:
        x = on_device(rng.standard_normal(shape).astype(np.float32))
        judge(kernel(CORNERS), x, tolerance=1e-4)


@pytest.mark.parametrize("shape", [(50, 4), (5000, 96), (700, 33), (9, 130)])
def test_rows_of_tables(shape, rng):
    x = on_device(rng.standard_normal(shape).astype(np.float32))
    near = on_device(rng.integers(-2, shape[0] + 2, (301, 7)))
    judge(kernel(NEAREST), x, near, tolerance=1e-5)
    judge(kernel(PAIRS), x, x, near[:, 0].contiguous(), near[:, 1].contiguous(), tolerance=1e-5)


@pytest.mark.parametrize("shape", [(3333, 444), (3, 300001), (1, 77), (700, 5000), (40000, 9)])
def test_stages_of_fewer_axes(shape, rng):
    x = on_device(rng.standard_normal(shape).astype(np.float32) + 2)
    w = on_device(rng.standard_normal(shape[1:]).astype(np.float32))
    judge(kernel(WEIGHTED.text), x, w, tolerance=1e-4)


def test_extremes_of_words(rng):
    ends = np.array([-(2**31), 2**31 - 1, 0, -1])
    for shape in SHAPES:
        x = rng.integers(-(2**31), 2**31, shape, dtype=np.int32)
        for rows in (x, np.full_like(x, -(2**31)), rng.choice(ends, shape).astype(np.int32)):
            judge(kernel(RANGES), on_device(rows))


IMAGES = [(8, 224, 224, 3), (3, 17, 33, 4), (200, 5, 7, 2), (1, 900, 900, 3)]


@pytest.mark.parametrize("shape", IMAGES)
def test_coordinates_side_by_side(shape, rng):
    x = on_device(rng.standard_normal(shape).astype(np.float32), "bfloat16")
    judge(kernel(PIXELS), x)
