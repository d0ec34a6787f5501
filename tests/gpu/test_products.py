"""Products on tensor cores: plain, with what is around them, and sweeps cut into segments."""

import numpy as np
import pytest

from tests.cubin.test_matrix_products import CASES, REFUSED
from tests.cubin.test_matrix_segments import CASES as SEGMENTED
from tests.gpu.calling import judge, kernel, on_device, torch

pytestmark = pytest.mark.gpu

ATTENTION = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
GROUPED = ATTENTION.replace('"b h m', '"b (h r) m')


def given(rng, dtype, shapes):
    f32 = {"scale"}
    return {
        name: on_device(rng.standard_normal(shape), "float32" if name in f32 else dtype)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", [*CASES, *REFUSED])
def test_products(name, dtype, rng):
    text, shapes = (CASES | REFUSED)[name]
    tolerance = 1e-5 if dtype == "float32" else 0.02
    judge(kernel(text.strip()), **given(rng, dtype, shapes), tolerance=tolerance)


LARGE = [(300, 1000, 520), (1000, 512, 96), (700, 520, 144), (1, 4096, 1024), (129, 72, 48)]


@pytest.mark.parametrize("sizes", LARGE)
@pytest.mark.parametrize("name", ["plain", "turned", "normed", "to f32"])
def test_larger_products(name, sizes, rng):
    m, k, n = sizes
    text, shapes = CASES[name]
    new: dict[str, tuple[int, ...]] = dict(
        zip(shapes, ((m, k), (n, k) if name == "turned" else (k, n)), strict=False)
    )
    if name == "normed":
        new = {"x": (m, k), "g": (k,), "w": (k, n)}
    judge(kernel(text.strip()), **given(rng, "bfloat16", new), tolerance=0.02)


@pytest.mark.parametrize("name", SEGMENTED)
def test_segments(name, rng):
    text, sizes = SEGMENTED[name]
    b, h, m, n, d = 1, sizes.get("h", 1), sizes["m"], sizes["n"], sizes.get("d", 64)
    shapes = {"q": (b, h, m, d), "k": (b, h, n, d), "v": (b, h, n, sizes.get("e", d))}
    judge(kernel(text.strip()), **given(rng, "bfloat16", shapes), tolerance=0.02)


def test_runs_give_the_same_bits(rng):
    t = torch()
    compiled = kernel(GROUPED.strip())
    arrays = given(rng, "bfloat16", {"q": (2, 16, 1, 128), "k": (2, 2, 3000, 128)})
    q, k = arrays["q"], arrays["k"]
    first = compiled(q, k, k)
    assert all(t.equal(first, compiled(q, k, k)) for _ in range(50))


def test_a_value_behind_a_mask_does_not_show(rng):
    text, _ = SEGMENTED["few queries"]
    arrays = given(rng, "bfloat16", {x: (1, 2, 5 if x == "q" else 900, 64) for x in "qkv"})
    arrays["v"][0, 0, 898, 3] = float("nan")
    found = kernel(text.strip())(**arrays)
    lost = np.asarray(t_isnan(found))
    assert lost[0, 0, 3:, 3].all()
    assert lost.sum() == 2


def t_isnan(tensor):
    return torch().isnan(tensor).cpu().numpy()
