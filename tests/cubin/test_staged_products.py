"""Products of operands that are stored first: emulated, and compiled for Hopper."""

import ml_dtypes
import numpy as np
import pytest

import redlang
from redlang.runtime.planner import Planner
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import TYPES, arrays, attend, check

SQUARES = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> ("b h m e", "b h m e"):
    x = where(n < size(n) - 10, sum[d](q * k) * rsqrt(size(d)))
    p = exp(x - max[n](x))
    z = sum[n](p)
    return sum[n](p * v) / z, sum[n](p * v * v) / z
"""
INTEGERS = """
def f(q: "b h m d", k: "b h n d", v: "b h n e", s: "f32[b h n]", t: "f32[h e]") -> "b h m e":
    x = sum[d](q * (f32(k) * s)) * rsqrt(size(d))
    p = exp(x - max[n](x))
    return sum[n](p * (f32(v) * t)) / sum[n](p)
"""
NORMS = """
def f(q: "b h m d", k: "b h n d", v: "b h n e", g: "d") -> "b h m e":
    a = q * rsqrt(mean[d](q * q) + 1e-6) * g
    c = k * rsqrt(mean[d](k * k) + 1e-6)
    x = sum[d](a * c) * rsqrt(size(d))
    p = exp(x - max[n](x))
    return sum[n](p * v) / sum[n](p)
"""
GROUPS = """
def f(x: "m (g c)", w: "n (g c)", s: "f32[n g]") -> "m n":
    return sum[g](sum[c](x * w) * s)
"""


def whole(rng, *shape):
    return rng.integers(-127, 128, shape).astype(np.int8)


def scale(rng, *shape):
    return rng.uniform(0.001, 0.02, shape).astype(np.float32)


def launched(driver):
    return [path.path for path in driver.paths]


def test_squares_beside_what_is_absent(gpu, rng):
    given = arrays(rng, "f16", **attend(h=1, m=20, n=70, d=24))
    given["v"][..., -3:, :] = np.nan
    given["k"][..., -1, :] = np.inf
    check(SQUARES, given, gpu, tolerance=0.001)
    assert launched(gpu) == ["wgmma"]


def test_integers_with_scales(gpu, rng):
    given = arrays(rng, "f16", q=(1, 2, 70, 32))
    given |= {"k": whole(rng, 1, 2, 100, 32), "v": whole(rng, 1, 2, 100, 40)}
    given |= {"s": scale(rng, 1, 2, 100), "t": scale(rng, 2, 40)}
    check(INTEGERS, given, gpu)
    assert launched(gpu) == ["wgmma"]


def test_both_operands_of_scores(gpu, rng):
    given = arrays(rng, "f16", **attend(), g=(32,))
    check(NORMS, given, gpu, tolerance=0.002)
    assert launched(gpu) == ["wgmma"]


def test_groups_of_integers(gpu, rng):
    given = arrays(rng, "f16", x=(20, 256)) | {"w": whole(rng, 40, 256), "s": scale(rng, 40, 4)}
    check(GROUPS, given, gpu, tolerance=0.002)
    assert launched(gpu) == ["wgmma"]


GRAM = 'def f(x: "m k") -> "m j":\n    return sum[k](x * x[j, k])\n'
CHAIN = """
def f(q: "m d", a: "d c", k: "n c", v: "n e") -> "m e":
    x = sum[c](sum[d](q * a) * k)
    p = exp(x - max[n](x))
    return sum[n](p * v) / sum[n](p)
"""
WAVES = 'def f(x: "m k", z: "f32[j]") -> "m j":\n    return sum[k](x * exp(-0.01 * k * j)) + z\n'
ROWS_OF_INTEGERS = """
def f(x: "m k", w: "i8[n k]", s: "f32[n]") -> "m n":
    a = max[k](abs(x)) / 127
    return sum[k](i8(round(x / a)) * w) * a * s
"""


WEIGHTED = """
def f(x: "n i", y: "n j", w: "n", c: "bool[n]") -> "i j":
    z = sum[n](where(c, w))
    u = sum[n](where(c, w * x)) / z
    v = sum[n](where(c, w * y)) / z
    return sum[n](where(c, w * (x - u) * (y - v))) / z
"""


def stores(kernel):
    """Return how many results of its own the program of a kernel of one result stores."""
    (finder,) = kernel.machine._cuda_finders.values()
    program = finder.compiler.last.loops.program
    return len(program.results) - 1


def test_an_array_is_multiplied_with_itself_under_another_axis(gpu, rng):
    kernel = check(GRAM, arrays(rng, "bf16", x=(70, 272)), gpu, tolerance=4e-3)
    assert launched(gpu) == ["wgmma"]
    assert stores(kernel) == 0


def test_a_product_that_scores_read_is_stored(gpu, rng):
    given = arrays(rng, "bf16", q=(70, 64), a=(64, 32), k=(130, 32), v=(130, 40))
    given["a"] = (given["a"].astype(np.float32) / 64).astype(given["a"].dtype)
    kernel = check(CHAIN, given, gpu, tolerance=0.02)
    assert launched(gpu) == ["wgmma", "wgmma"]
    assert stores(kernel) == 1


def test_what_indices_make_is_stored(gpu, rng):
    x = rng.standard_normal((70, 272)).astype(np.float32)
    kernel = check(WAVES, {"x": x, "z": np.zeros(64, np.float32)}, gpu, tolerance=1e-5)
    assert launched(gpu) == ["fma"]
    assert stores(kernel) == 1


def test_a_covariance_under_weights_and_a_mask(gpu, rng):
    given = {n: rng.standard_normal((272, 40)).astype(np.float32) for n in "xy"}
    given |= {"w": scale(rng, 272), "c": rng.random(272) < 0.7}
    given["x"][~given["c"]] = np.nan
    kernel = check(WEIGHTED, given, gpu, tolerance=1e-5)
    assert launched(gpu) == ["fma"]
    (finder,) = kernel.machine._cuda_finders.values()
    bases = [part.nest.base for part in finder.compiler.last.parts]
    # Sums of x and of y are apart, each with the sum of weights.
    assert bases.count(()) == 2


def test_integers_that_a_cast_makes_are_stored_with_their_scale(gpu, rng):
    given = arrays(rng, "bf16", x=(70, 272))
    given |= {"w": whole(rng, 64, 272), "s": scale(rng, 64)}
    kernel = check(ROWS_OF_INTEGERS, given, gpu, tolerance=4e-3)
    assert launched(gpu) == ["wgmma"]
    assert stores(kernel) == 2


WEIGHTS = 'def f(x: "m k", w: "n k", s: "f32[n]") -> "m n":\n    return sum[k](x * w) * s\n'


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, ml_dtypes.float8_e4m3fn])
def test_weights_of_8_bits_are_computed_with_where_rows_are_few(dtype, gpu, rng):
    given = arrays(rng, "bf16", x=(16, 272)) | {"s": scale(rng, 70)}
    given["w"] = rng.integers(0, 100, (70, 272)).astype(dtype)
    kernel = check(WEIGHTS, given, gpu, tolerance=4e-3)
    assert launched(gpu) == ["wgmma"]
    (finder,) = kernel.machine._cuda_finders.values()
    (made,) = finder.compiler.last.kernels
    assert "w.fetch(" in made.text.source


COVARIANCE = """
def f(x: "n i", y: "n j") -> "i j":
    u = mean[n](x)
    v = mean[n](y)
    return mean[n]((x - u) * (y - v))
"""
ROUNDED = 'def f(x: "n i", y: "n j") -> "{0}[i j]":\n    return sum[n]({0}(f32(x)) * {0}(f32(y)))'


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [(COVARIANCE, 1e-13), (ROUNDED.format("f64"), 1e-13), (ROUNDED.format("f32"), 1e-6)],
)
def test_f64_is_rounded_where_the_text_says_so(text, tolerance, gpu, rng):
    given = {"x": 100 + rng.standard_normal((77, 40)), "y": rng.standard_normal((77, 36))}
    check(text, given, gpu, tolerance=tolerance)
    assert launched(gpu) == ["fma"]


def test_two_types_are_multiplied_in_f32(gpu, rng):
    given = arrays(rng, "bf16", **attend(h=1, m=20, n=70, d=24))
    given["q"] = given["q"].astype(np.float32)
    text = SQUARES.replace('("b h m e", "b h m e")', '("f32[b h m e]", "f32[b h m e]")')
    check(text, given, gpu, tolerance=1e-5)
    assert launched(gpu) == ["fma"]


LONG = {"m": 4096, "n": 4096, "d": 64, "b": 4, "h": 16}
GRID = [
    (WEIGHTS, "bf16", {"x": (16, 4096), "w": (4096, 4096)}, {"s": (4096,)}),
    (SQUARES, "f16", attend(**LONG), {}),
    (INTEGERS, "bf16", attend(**LONG), {"s": (4, 16, 4096), "t": (16, 64)}),
    (GROUPS, "bf16", {"x": (4096, 4096), "w": (4096, 4096)}, {"s": (4096, 32)}),
]


@pytest.mark.parametrize(("text", "dtype", "shapes", "scales"), GRID)
def test_kernels_keep_to_their_registers(text, dtype, shapes, scales, monkeypatch):
    given = {name: np.zeros(shape, TYPES[dtype]) for name, shape in shapes.items()}
    if scales:
        given |= {n: np.zeros(given[n].shape, np.int8) for n in ("k", "v", "w") if n in given}
    given |= {name: np.zeros(shape, np.float32) for name, shape in scales.items()}
    with compiling(monkeypatch) as driver:
        redlang.compile(text.strip(), {})(**given)
    assert any("wgmma.mma_async" in kernel.ptx for kernel in driver.kernels)
    assert all(kernel.spill_bytes == 0 for kernel in driver.kernels)
    assert len(driver.kernels) <= 4


GRAPH = """
def f(a: "bool[i j]", l: "i", r: "j", x: "j d") -> ("i d", "i d"):
    s = where(a, l * r)
    p = exp(s - max[j](s))
    return sum[j](p * x) / sum[j](p), sum[j](where(a, x))
"""
PAGES = """
def f(q: "b h d", k: "y s d", v: "y s e", t: "i32[b j]") -> "b h e":
    n = axis(8 * size(j))
    x = where(n < size(n) - 3, sum[d](q * k[t[b, n // 8], n % 8, d]))
    p = exp(x - max[n](x))
    return sum[n](p * v[t[b, n // 8], n % 8, e]) / sum[n](p)
"""


def test_weights_that_are_no_products(gpu, rng):
    given = arrays(rng, "bf16", l=(70,), r=(80,), x=(80, 40)) | {"a": rng.random((70, 80)) < 0.2}
    given["a"][7] = False
    given["a"][9, 11] = False
    given["x"][11] = np.nan
    check(GRAPH, given, gpu, tolerance=0.01)
    assert launched(gpu) == ["wgmma"]


def test_rows_of_pages_are_stored(gpu, rng):
    given = arrays(rng, "bf16", q=(2, 16, 32), k=(12, 8, 32), v=(12, 8, 32))
    given["t"] = rng.integers(-1, 13, (2, 10)).astype(np.int32)
    given["v"][5] = np.nan
    given["t"][0][given["t"][0] == 5] = 4
    kernel = check(PAGES, given, gpu, tolerance=0.01)
    assert launched(gpu) == ["wgmma"]
    assert stores(kernel) == 3


SPREAD = """
def f(q: "m d", k: "n d", v: "n e") -> "m e":
    x = where((n < size(n) - 2) & (n <= m + 50), sum[d](q * k))
    p = exp(x - max[n](x))
    z = sum[n](p)
    return sqrt(sum[n](p * (v - sum[n](p * v) / z) ** 2) / z)
"""
LAYERS = """
def f(x: "t d", a: "h d", b: "n h") -> "t n":
    u = sum[d](x * a)
    return sum[h](u * sigmoid(u) * b)
"""


OUTER = 'def f(a: "s i c", b: "s j e") -> "i j c e":\n    return maximum(sum[s](a * b), 0)\n'


def test_results_that_units_leave_apart_are_turned(gpu, rng, monkeypatch):
    forms = Planner.forms

    def turned(self, *given):
        return tuple(form for form in forms(self, *given) if form.name == "turned")

    monkeypatch.setattr(Planner, "forms", turned)
    kernel = check(OUTER, arrays(rng, "bf16", a=(48, 10, 8), b=(48, 12, 6)), gpu, tolerance=0.01)
    assert launched(gpu) == ["wgmma"]
    assert stores(kernel) == 3


def test_deviations_under_weights_of_each_row(gpu, rng):
    given = arrays(rng, "bf16", q=(70, 32), k=(130, 32), v=(130, 40))
    # Each row sees one of two groups, whose means are 60 deviations apart.
    group = np.where(np.arange(130) % 2, 4, -4)
    given["k"][:, 0], given["q"][:, 0], given["q"][:35, 0] = group, 4, -4
    given["v"] += (group[:, None] * np.float32(7.5)).astype(given["v"].dtype)
    # Some are behind the mask of all rows, and of such as others see.
    given["v"][-1], given["v"][125], given["v"][3, 5] = np.nan, 1e30, np.inf
    kernel = check(SPREAD, given, gpu, tolerance=0.01)
    assert launched(gpu) == ["wgmma"]
    assert stores(kernel) == 6


def test_a_product_of_a_function_of_a_product(gpu, rng):
    kernel = check(LAYERS, arrays(rng, "bf16", x=(70, 64), a=(640, 64), b=(576, 640)), gpu)
    assert launched(gpu) == ["wgmma", "wgmma"]
    assert stores(kernel) == 1
