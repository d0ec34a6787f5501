"""Compiled kernels keep their digits in f32 where formulas of textbooks lose them.

The judge is the unfused program in float64; the bar is 1e-4. The shapes are such that rows stay on
chip, stream past a single unit each, and are cut into segments.
"""

from functools import cache

import numpy as np
import pytest

import redlang

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BAR = 1e-4
shapes = pytest.mark.parametrize(
    "shape", [(3, 0), (3, 1), (3, 200), (40, 70_001), (1, 300_001)], ids=str
)


@cache
def compiled(parameters, results, *lines):
    body = "".join(f"    {line}\n" for line in lines)
    return redlang.compile(f"def kernel({parameters}) -> {results}:\n{body}")


def holds(kernel, *, rows=False, **arrays):
    """Assert that results are right, element by element, or norm-wise for each row."""
    actual, right = kernel(**arrays), kernel.reference(**arrays)
    many = isinstance(actual, tuple)
    for one, other in zip(actual if many else (actual,), right if many else (right,), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other)
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
        one, other = np.nan_to_num(one), np.nan_to_num(other)
        if rows:
            distance = np.linalg.norm(one - other, axis=-1)
            assert (distance <= BAR * np.linalg.norm(other, axis=-1)).all()
        else:
            np.testing.assert_allclose(one, other, rtol=BAR)


def normal(shape, mean=0.0, std=1.0, seed=3):
    values = mean + std * np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


VARIANCE = 'x: "m n"', '"m"', "u = mean[n](x)", "return mean[n]((x - u) ** 2)"


@shapes
def test_variance_far_from_zero(shape):
    kernel, place = compiled(*VARIANCE), np.arange(shape[1])
    for row in (1e6 + place % 4, 1e8 + 8 * place, 0 * place + 1e15):
        holds(kernel, x=np.tile(row.astype(np.float32), (shape[0], 1)))
    holds(kernel, x=normal(shape, mean=1e5))


def test_equal_elements_have_a_deviation():
    lines = ("y = where(c, x)", "return sqrt(mean[n]((y - mean[n](y)) ** 2))")
    kernel = compiled('x: "m n", c: "bool[m n]"', '"m"', *lines)
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(0, 1e4, (40, 1)).astype(np.float32), 2962, 1)
    # Sums about a centre are off by some 1e-17 x^2 on either side of 0.
    assert (kernel(x, rng.random(x.shape) < 0.5) <= 1e-6 * abs(x[:, 0])).all()


@shapes
def test_layer_norm_at_mean_over_deviation_1e5(shape):
    kernel = compiled(
        'x: "m n"',
        '"m n"',
        "u = mean[n](x)",
        "v = mean[n]((x - u) ** 2)",
        "return (x - u) * rsqrt(v + 1e-5)",
    )
    holds(kernel, rows=True, x=normal(shape, mean=1e5))


@shapes
def test_softmax_at_scale_1e4(shape):
    kernel = compiled('x: "m n"', '"m n"', "p = exp(x - max[n](x))", "return p / sum[n](p)")
    x = normal(shape, std=1e4)
    late = normal(shape)
    late[:, : shape[1] // 2] = -np.inf
    for scores in (x, np.sort(x), -np.sort(-x), late):
        holds(kernel, rows=True, x=scores)


@shapes
def test_distance_from_the_mean_in_an_exponential(shape):
    kernel = compiled('x: "m n"', '"m"', "return sum[n](exp(x - mean[n](x)))")
    x = normal(shape, mean=1e3, std=3)
    holds(kernel, x=x)
    holds(kernel, x=np.sort(x))


@shapes
@pytest.mark.parametrize(("base", "top"), [(0, 60), (0, 85), (-80, 3)])
def test_a_maximum_of_something_else_that_arrives_late(shape, base, top):
    kernel = compiled('x: "m n", y: "m n"', '"m"', "return sum[n](exp(x - max[n](y)))")
    y = normal(shape, mean=base, seed=4)
    y[:, -1:] = top
    holds(kernel, x=normal(shape), y=y)


@shapes
def test_stages_with_different_masks_that_start_hidden(shape):
    kernel = compiled(
        'x: "m n", c: "bool[m n]", e: "bool[m n]"',
        '("m", "m")',
        "a = where(c, x)",
        "b = where(e, x)",
        "return sum[n]((b - mean[n](a)) ** 2), mean[n](exp(b - max[n](a)))",
    )
    c, e = np.random.default_rng(5).random((2, *shape)) > 0.5
    half = shape[1] // 2
    c[0, :half], e[-1, :half] = False, False
    holds(kernel, x=normal(shape, mean=10), c=c, e=e)
    c[:] = np.arange(shape[1]) == shape[1] - 1
    holds(kernel, x=normal(shape, mean=10), c=c, e=e)
    holds(kernel, x=normal(shape, mean=10), c=c & False, e=e)


@shapes
def test_a_centre_of_mass_without_mass_at_first(shape):
    kernel = compiled(
        'w: "m n", x: "m n"',
        '"m"',
        "u = sum[n](w * x) / sum[n](w)",
        "return sum[n](w * (x - u) ** 2)",
    )
    w = abs(normal(shape, seed=6))
    holds(kernel, w=w, x=normal(shape, mean=1e3))
    if shape[1] > 1:
        w[:, : shape[1] // 2] = 0
        holds(kernel, w=w, x=normal(shape, mean=1e3))


@pytest.mark.parametrize("fuse", ["auto", "never"])
def test_a_variance_with_weights_of_a_softmax_far_from_zero(fuse):
    for n in (2048, 50_000):
        text = """
def f(s: "m n", x: "m n") -> "m":
    p = exp(s - max[n](s))
    p = p / sum[n](p)
    return sum[n](p * (x - sum[n](p * x)) ** 2)
"""
        holds(redlang.compile(text, fuse=fuse), s=normal((2, n)), x=normal((2, n), mean=1e5))
