"""Matrix kernels on instructions that every GPU from 8.0 on has, and of f32, against float64."""

import itertools

import numpy as np
import pytest

import redlang
from redlang.schedule.matrix_plans import PLAIN_ROWS
from tests.cubin.test_matrix_calls import (
    ANY_SIGN,
    CAUSAL,
    FULL,
    GROUPED,
    VARIANTS,
    attend,
    not_finite,
    scores,
    variant,
)
from tests.cubin.test_pairs import DISTANCES
from tests.cubin.test_staged_products import COVARIANCE
from tests.gpu.calling import compare, judge, numpy, on_device

pytestmark = pytest.mark.gpu

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6}


def tensors(rng, dtype, **shapes):
    return {n: on_device(rng.standard_normal(s), dtype) for n, s in shapes.items()}


def check(text, given, names=None, instructions="portable"):
    kernel = redlang.compile(text.strip(), names or {}, instructions=instructions)
    dtype = str(given["q"].dtype).removeprefix("torch.")
    found = judge(kernel, **given, tolerance=TOLERANCE[dtype])
    if dtype != "float32" or given["q"].shape[-2] > PLAIN_ROWS:
        assert "matrix tiles" in kernel.explain("plan").split("lost")[0]
    again = kernel(**given)
    for a, b in zip(found, again if isinstance(again, tuple) else (again,), strict=True):
        np.testing.assert_array_equal(*(numpy(x).view(f"u{x.element_size()}") for x in (a, b)))
    return found


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("text", [FULL, CAUSAL])
@pytest.mark.parametrize("d", [16, 64, 80, 128, 256])
def test_head_dims(text, dtype, d, rng):
    check(text, tensors(rng, dtype, **attend(m=130, n=200, d=d)))


@pytest.mark.parametrize("instructions", ["portable", "auto"])
@pytest.mark.parametrize(("d", "e"), [(7, 9), (1, 1), (18, 22), (20, 44), (67, 33), (100, 127)])
def test_lines_of_any_length(d, e, instructions, rng):
    given = tensors(rng, "float16", **attend(m=65, n=90, d=d, e=e))
    check(CAUSAL, given, instructions=instructions)


LENGTHS = list(itertools.product((1, 5, 64, 129, 300), (1, 16, 63, 257)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_lengths(dtype, rng):
    for m, n in LENGTHS:
        check(CAUSAL, tensors(rng, dtype, **attend(m=m, n=n, d=64)))


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, rng):
    given = tensors(rng, "bfloat16", **attend(b=2, m=150, n=150, d=64))
    extra, names = variant(name, rng, b=2, m=150)
    own = {n: x if isinstance(x, float) else on_device(x) for n, x in extra.items()}
    check(VARIANTS[name], given | own, names)


@pytest.mark.parametrize("m", [1, 3, 70])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_grouped_heads(m, dtype, rng):
    shapes = {"q": (2, 8, m, 64), "k": (2, 2, 140, 64), "v": (2, 2, 140, 64)}
    check(GROUPED, tensors(rng, dtype, **shapes))


@pytest.mark.parametrize("instructions", ["portable", "auto"])
@pytest.mark.parametrize("text", [CAUSAL, ANY_SIGN])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_is_not_finite_shows_where_it_takes_part(dtype, text, instructions, rng):
    given = tensors(rng, dtype, **attend(m=180, n=180, d=64))
    check(text, not_finite(given), instructions=instructions)


PRODUCT = 'def f(x: "b m k", y: "b k n") -> "b m n":\n    return sum[k](x * y)'
DOUBLES = {
    "full": (FULL, attend(m=180, n=333, d=64, e=80)),
    "not finite": (CAUSAL, attend(m=180, n=180, d=128)),
    "any sign": (ANY_SIGN, attend(m=180, n=180, d=64)),
    "distances": (DISTANCES, {"x": (333, 41), "c": (257, 41)}),
    "product": (PRODUCT, {"x": (3, 259, 141), "y": (3, 141, 135)}),
    "covariance": (COVARIANCE, {"x": (1500, 130), "y": (1500, 70)}),
    "long": (PRODUCT, {"x": (1, 130, 5000), "y": (1, 5000, 96)}),
}


@pytest.mark.parametrize("name", DOUBLES)
def test_f64_keeps_its_digits(name, rng):
    text, shapes = DOUBLES[name]
    given = tensors(rng, "float64", **shapes)
    if name in ("not finite", "any sign"):
        not_finite(given)
    kernel = redlang.compile(text.strip(), {})
    judge(kernel, **given, tolerance=1e-13)
    chosen = [line for line in str(kernel.explain("plan")).splitlines() if line[:4] == "nest"]
    assert any("matrix tiles" in line for line in chosen)


def test_rows_without_any_element(rng):
    given = tensors(rng, "float16", **attend(m=150, n=70, d=64))
    check(scores("s = where((n <= m) & (n > m - 24), s)"), given)


def test_layouts(rng):
    given = tensors(rng, "bfloat16", **attend(m=130, n=130, d=64))
    check(CAUSAL, {n: x.transpose(2, 3).contiguous().transpose(2, 3) for n, x in given.items()})
    check(CAUSAL, {n: x.transpose(1, 2).contiguous().transpose(1, 2) for n, x in given.items()})
    check(CAUSAL, given | {"k": given["k"][:, :1].expand(-1, 2, -1, -1)})
    check(CAUSAL, given | {"q": given["q"][:, :, ::2]})


def test_results_agree_with_those_of_warp_groups(rng):
    given = tensors(rng, "float16", **attend(b=2, h=4, m=300, n=333, d=128))
    fast, slow = (
        redlang.compile(CAUSAL.strip(), {}, instructions=name)(**given)
        for name in ("auto", "portable")
    )
    compare(numpy(fast), numpy(slow).astype(np.float64), 2e-3)
