"""Accuracy of incremental forms in f32, for tiles of one element up to the whole axis.

The judge is the unfused program in float64; the bar is 1e-4, mostly far undercut. `never` is the
form in several sweeps, which must hold as well.
"""

import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from tests.algebra.programs import fused, kernel, oracle, program_of

CUTS = ((1, 1), (7, 3), (64, 2), (4096, 1))
"""Tile and number of segments."""

LONG_CUTS = ((64, 2), (512, 1), (4096, 1))
BAR = 1e-4

VARIANCE = kernel('x: "m n"', "u = mean[n](x)", "return mean[n]((x - u) ** 2)")
LAYER_NORM = kernel(
    'x: "m n"',
    "u = mean[n](x)",
    "v = mean[n]((x - u) ** 2)",
    "return (x - u) * rsqrt(v + 1e-5)",
)
SOFTMAX = kernel('x: "m n"', "p = exp(x - max[n](x))", "return p / sum[n](p)")
FROM_MEAN = kernel('x: "m n"', "return sum[n](exp(x - mean[n](x)))")
LATE = kernel('x: "m n", y: "m n"', "return sum[n](exp(x - max[n](y)))")
OTHER_MEAN = kernel('x: "m n", y: "m n"', "return sum[n]((x - mean[n](y)) ** 2)")
MASKS = kernel(
    'x: "m n", c: "bool[m n]", e: "bool[m n]"',
    "a = where(c, x)",
    "b = where(e, x)",
    "return sum[n]((b - mean[n](a)) ** 2), mean[n](exp(b - max[n](a)))",
)
WEIGHTED = kernel(
    'w: "m n", x: "m n"',
    "u = sum[n](w * x) / sum[n](w)",
    "return sum[n](w * (x - u) ** 2)",
)
COVARIANCE = kernel('x: "m n", y: "m n"', "return mean[n]((x - mean[n](x)) * (y - mean[n](y)))")
INTO_PRODUCT = kernel(
    'x: "m n", g: "n", w: "n e"',
    "u = mean[n](x)",
    "v = mean[n]((x - u) ** 2)",
    "return sum[n]((x - u) * rsqrt(v + 1e-5) * g * w)",
)
SOFTMAX_VARIANCE = kernel(
    'x: "m n", v: "m n"',
    "p = exp(x - max[n](x))",
    "p = p / sum[n](p)",
    "return sum[n](p * (v - sum[n](p * v)) ** 2)",
)


SIGNED = kernel(
    'w: "m n", x: "m n", y: "m n"',
    "u = sum[n](w * x) / sum[n](w)",
    "v = mean[n](y)",
    "return sum[n](w * (x - u) ** 2), sum[n](w * (x - u) ** 3), sum[n](w * (x - v) ** 2)",
)


def normal(*shape, mean=0.0, std=1.0, seed=3):
    values = mean + std * np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


def error(text, arrays, *, mode="auto", cuts=CUTS):
    """Return the largest norm-wise error over tiles and segments."""
    dtypes = {name: "bool" for name, array in arrays.items() if array.dtype == bool}
    program = program_of(text, dtypes)
    expected = oracle(program, arrays)
    fusion = fuse(program, mode=mode)
    errors = [0.0]
    for tile, segments in cuts:
        actual = fused(fusion, arrays, tile=tile, segments=segments, precision="declared")
        for a, e in zip(actual, expected, strict=True):
            a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
            np.testing.assert_array_equal(np.isfinite(a), np.isfinite(e))
            finite = np.isfinite(e)
            distance = np.linalg.norm(a[finite] - e[finite])
            errors.append(float(distance / (np.linalg.norm(e[finite]) or 1.0)))
    return max(errors)


both = pytest.mark.parametrize("mode", ["auto", "never"])


@both
@pytest.mark.parametrize(
    "x",
    [
        1e6 + np.arange(256) % 4,
        1e8 + 8 * np.arange(4),
        1e8 + 8 * np.arange(256),
        1e15 + np.arange(5),
    ],
    ids=["1e6", "1e8", "1e8 long", "constant after rounding"],
)
def test_variance_far_from_zero(x, mode):
    assert error(VARIANCE, {"x": np.array([x], np.float32)}, mode=mode) < BAR


@pytest.mark.parametrize(
    "x",
    [1e6 + np.arange(4096) % 4, 1e8 + 8 * np.arange(4096), normal(1 << 15, mean=1e6)],
    ids=["1e6", "1e8", "random"],
)
def test_variance_of_a_long_row_far_from_zero(x):
    assert error(VARIANCE, {"x": np.array([x], np.float32)}, cuts=LONG_CUTS) < BAR


@both
def test_layer_norm_at_mean_over_deviation_1e5(mode):
    assert error(LAYER_NORM, {"x": normal(3, 200, mean=1e5)}, mode=mode) < BAR


@both
@pytest.mark.parametrize(
    "x",
    [normal(3, 200, std=1e4), np.linspace(-1e4, 1e4, 200)[None], np.linspace(1e4, -1e4, 200)[None]],
    ids=["random", "rising", "falling"],
)
def test_softmax_at_scale_1e4(x, mode):
    assert error(SOFTMAX, {"x": x.astype(np.float32)}, mode=mode) < BAR


@both
@pytest.mark.parametrize("ordered", [False, True])
def test_exponential_of_the_distance_from_the_mean(ordered, mode):
    x = normal(3, 200, mean=1e3, std=5)
    x = np.sort(x) if ordered else x
    assert error(FROM_MEAN, {"x": x}, mode=mode) < BAR


@both
@pytest.mark.parametrize(("base", "top"), [(0, 60), (0, 90), (-200, 3)])
def test_maximum_of_something_else_that_arrives_late(base, top, mode):
    y = normal(3, 200, seed=4) + np.float32(base)
    y[:, -1] = top
    assert error(LATE, {"x": normal(3, 200), "y": y}, mode=mode) < BAR


@both
def test_early_outlier_in_the_mean_of_something_else(mode):
    y = normal(3, 200, seed=4)
    y[:, 0] = 1e6
    assert error(OTHER_MEAN, {"x": normal(3, 200), "y": y}, mode=mode) < BAR


@both
def test_stages_with_different_masks_and_masked_starts(mode):
    rng = np.random.default_rng(5)
    c, e = rng.random((2, 5, 200)) > 0.5
    c[0, :100] = False
    e[1, :100] = False
    c[2, 100:] = False
    e[3] = False
    arrays = {"x": normal(5, 200, mean=1e4), "c": c, "e": e}
    assert error(MASKS, arrays, mode=mode) < BAR


@both
def test_context_that_is_undefined_in_the_first_tile(mode):
    w = np.abs(normal(3, 200))
    w[:, :70] = 0
    assert error(WEIGHTED, {"w": w, "x": normal(3, 200, mean=1e5)}, mode=mode) < BAR


@both
def test_covariance_far_from_zero(mode):
    x, y = normal(3, 200), normal(3, 200, seed=4)
    arrays = {"x": x + y + np.float32(1e5), "y": y - np.float32(1e5)}
    assert error(COVARIANCE, arrays, mode=mode) < BAR


@both
def test_layer_norm_into_a_product(mode):
    arrays = {
        "x": normal(3, 200, mean=1e4),
        "g": normal(200, seed=1),
        "w": normal(200, 4, seed=2),
    }
    assert error(INTO_PRODUCT, arrays, mode=mode) < BAR


def test_softmax_weighted_variance_far_from_zero():
    arrays = {"x": normal(3, 200, std=5), "v": normal(3, 200, mean=1e5, seed=4)}
    assert error(SOFTMAX_VARIANCE, arrays) < BAR


@both
@pytest.mark.parametrize("extent", [0, 1, 2])
@pytest.mark.parametrize(
    "text", [VARIANCE, SOFTMAX, FROM_MEAN, LAYER_NORM], ids=["variance", "softmax", "mean", "norm"]
)
def test_short_and_empty_axes(text, extent, mode):
    assert error(text, {"x": normal(2, extent)}, mode=mode) < BAR


def test_products_of_infinite_elements_to_the_power_zero():
    text = kernel(
        'x: "m n", w: "m n"', "s = sum[n](w)", "return prod[n]((abs(x) + 1) ** (s * 0.5))"
    )
    x = np.ones((2, 9), np.float32)
    x[:, 4] = np.inf
    w = np.zeros_like(x)
    w[1, 3] = 1
    program = program_of(text)
    for tile, segments in CUTS:
        (actual,) = fused(fuse(program), {"x": x, "w": w}, tile=tile, segments=segments)
        np.testing.assert_array_equal(actual, [1, np.inf])


@pytest.mark.parametrize(("tile", "segments"), CUTS)
def test_weights_of_both_signs_that_gather_far_from_the_plain_mean(tile, segments):
    rng = np.random.default_rng(5)
    x = normal(4, 300, std=0.01)
    w = normal(4, 300, std=1e-3)
    # Nearly all weight is on a few elements, far away from all others.
    x[:, 100:110] += 50
    w[:, 100:110] = 10 + rng.normal(size=(4, 10))
    arrays = {"w": w, "x": x, "y": normal(4, 300, mean=45)}
    program = program_of(SIGNED)
    right = oracle(program, arrays)
    found = fused(
        fuse(program, mode="require"), arrays, tile=tile, segments=segments, precision="declared"
    )
    w, x, y = (arrays[name].astype(np.float64) for name in "wxy")
    u = ((w * x).sum(1) / w.sum(1))[:, None]
    v = y.mean(1)[:, None]
    terms = [abs(w * (x - u) ** 2), abs(w * (x - u) ** 3), abs(w * (x - v) ** 2)]
    for one, other, term in zip(found, right, terms, strict=True):
        assert np.all(np.abs(one - other) <= 100 * 2**-23 * term.sum(1))


@pytest.mark.parametrize(("tile", "segments"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("largest", [0, 1])
def test_distances_from_the_maximum_do_not_cancel(tile, segments, largest):
    # All but one element is far below: what is left is exp(-153) * -153.
    text = kernel(
        'x: "n"',
        "t = max[n](x)",
        "u = where(t == -inf, 0, t)",
        "return sum[n](exp(x - t) * (x - t)), sum[n](exp(x - u) * (u - x) ** 3)",
    )
    x = np.full(2, -113.58839720542113)
    x[largest] = 39.70453417775401
    d = x[1 - largest] - x[largest]
    fusion = fuse(program_of(text, {"x": "f64"}), mode="require")
    first, third = fused(fusion, {"x": x}, tile=tile, segments=segments)
    np.testing.assert_allclose(first, np.exp(d) * d, rtol=1e-12)
    np.testing.assert_allclose(third, np.exp(d) * -(d**3), rtol=1e-12)


def test_distances_from_a_maximum_of_nothing_are_nothing():
    text = kernel(
        'x: "n", c: "bool[n]"',
        "y = where(c, x)",
        "t = max[n](y)",
        "return sum[n](exp(y - t) * (y - t))",
    )
    fusion = fuse(program_of(text, {"x": "f64"}), mode="require")
    x = np.array([3.0, 1e32, 2.0])
    for c in ([False] * 3, [False, False, True], [True, False, True], [False, True, False]):
        arrays = {"x": x, "c": np.array(c)}
        for tile, segments in ((1, 1), (1, 3), (3, 1)):
            (found,) = fused(fusion, arrays, tile=tile, segments=segments)
            np.testing.assert_allclose(found, oracle(fusion.program, arrays)[0])


def test_a_carried_term_stays_in_the_range_that_the_text_keeps():
    text = kernel('x: "n", v: "n", g: "n"', "return sum[n](exp(x - max[n](x)) * v * g)")
    fusion = fuse(program_of(text), mode="require")
    arrays = {
        "x": np.array([0, -80], np.float32),
        "v": np.array([0, 1e25], np.float32),
        "g": np.array([0, 1e25], np.float32),
    }
    (found,) = fused(fusion, arrays, precision="declared")
    np.testing.assert_allclose(found, oracle(fusion.program, arrays)[0], rtol=1e-5)


def test_a_mean_that_reads_a_softmax_of_large_numbers():
    text = kernel(
        'x: "m n", y: "m n"',
        "z = sum[n](exp(x - max[n](x)))",
        "u = mean[n](-y - z)",
        "return sum[n]((x - u) ** 2)",
    )
    x, y = normal(3, 130, std=2e5), normal(3, 130, mean=100.0, seed=4)
    assert error(text, {"x": x, "y": y}) < BAR
