"""Sums of products as contractions: which factors go where, and that range is kept."""

import numpy as np
import pytest

import redlang

f32 = np.float32


def product(expr, *, signature='x: "m k", g: "k", y: "k n"', result="m n"):
    return redlang.compile(f'def product({signature}) -> "{result}":\n    return sum[k]({expr})')


def contractions(kernel):
    """Return the operands of the contractions, and factors of the whole sum."""
    text = str(kernel.explain("loops"))
    found = [line.split("] ", 1)[1] for line in text.splitlines() if " contract " in line]
    outer = [line.split(" = ", 1)[1] for line in text.splitlines() if ".outer: " in line]
    return [line.split("= ", 1)[1] for line in found], outer


SPLITS = {
    # The text multiplies the two groups by each other.
    "x * y": ["(x[m, k]) @[k] (y[k, n])"],
    "x * g * y": ["(x[m, k] * g[k]) @[k] (y[k, n])"],
    "x * (g * y)": ["(x[m, k]) @[k] (g[k] * y[k, n])"],
    # 1e-30 * 1e30 * 1e-30 would be 0 * 1e30.
    "x * y * g": [],
    # A mask, an index and a literal change places freely.
    "x * y * f32(k < 3)": ["(x[m, k] * f32(k < 3)) @[k] (y[k, n])"],
    "x * y * sign(g)": ["(x[m, k] * sign(g[k])) @[k] (y[k, n])"],
}


@pytest.mark.parametrize("expr", SPLITS)
def test_groups_are_those_of_the_text(expr):
    assert contractions(product(expr)) == (SPLITS[expr], [])


def test_short_floats_change_places_freely():
    kernel = product("x * y * g", signature='x: "f16[m k]", g: "f16[k]", y: "f16[k n]"')
    assert contractions(kernel)[0] == ["(x[m, k] * g[k]) @[k] (y[k, n])"]
    kernel = product("x * y * g", signature='x: "f32[m k]", g: "f32[k]", y: "f8e4m3[k n]"')
    assert contractions(kernel)[0] == ["(x[m, k] * g[k]) @[k] (y[k, n])"]


OUTER = {
    "x * y * c": "where(size(k) > 0, c, 0.0)",
    "c * (x * y)": "where(size(k) > 0, c, 0.0)",
    "x * 0.5 * y * h * 3": "where(size(k) > 0, 0.5 * h[m] * 3.0, 0.0)",
}


@pytest.mark.parametrize("expr", OUTER)
def test_factors_of_the_whole_sum_leave_it(expr):
    kernel = product(expr, signature='x: "m k", y: "k n", h: "f16[m]", c: float = 2')
    assert contractions(kernel) == (["(x[m, k]) @[k] (y[k, n])"], [OUTER[expr]])


@pytest.mark.parametrize(
    ("expr", "values"),
    [
        ("x * g * y", (1e-30, 1e30, 1e-30)),
        ("x * y * g", (1e-20, 1e-30, 1e30)),
        ("g * (x * y)", (1e20, 1e30, 1e-20)),
        ("(g * x) * y", (1e-20, 1e30, 1e-20)),
    ],
)
def test_no_order_leaves_the_range_where_the_text_does_not(expr, values):
    x, g, y = (np.full(s, v, f32) for s, v in zip(((9, 40), (40,), (40, 7)), values, strict=True))
    kernel = product(expr)
    np.testing.assert_allclose(kernel(x, g, y), kernel.reference(x, g, y), rtol=1e-5)


def test_a_factor_of_a_sum_over_nothing_does_not_show():
    kernel = product("x * y * h", signature='x: "m k", y: "k n", h: "m"')
    h = np.array([1, np.nan, np.inf], f32)
    x, y = np.zeros((3, 0), f32), np.zeros((0, 4), f32)
    np.testing.assert_array_equal(kernel(x, y, h), np.zeros((3, 4)))
    masked = product("where(k > 1, x * y * h)", signature='x: "m k", y: "k n", h: "m"')
    x, y = np.ones((3, 2), f32), np.ones((2, 4), f32)
    np.testing.assert_array_equal(masked(x, y, h), np.zeros((3, 4)))


def test_what_is_computed_inside_takes_a_scale_in():
    kernel = redlang.compile(
        """
def layers(x: "m d", a: "n d", b: "n e") -> "m e":
    s = sum[d](x * a)
    return sum[n](s * 0.5 * sigmoid(s) * b)
"""
    )
    found, outer = contractions(kernel)
    assert found[-1].endswith("@[n] (b[n, e])")
    assert outer == []


def test_a_product_of_very_many_factors_is_no_contraction():
    assert contractions(product(" * ".join(["x", "y", *["x"] * 3])))[0] == []
    assert contractions(product("(" + " * ".join(["x"] * 3) + ") * y"))[0]
    assert contractions(product("(" + " * ".join(["x"] * 40) + ") * y"))[0] == []


def test_a_sum_of_what_is_the_same_for_all_elements_is_no_product(rng):
    kernel = redlang.compile(
        'def spread(x: "m n") -> "m":\n'
        "    mu = mean[n](x)\n"
        "    y = (x - mu) * mu\n"
        "    return mean[n]((y - mean[n](y)) ** 2)\n"
    )
    x = rng.normal(1, 1, (3, 40)).astype(f32)
    expected = (x.astype(float) * x.mean(1, keepdims=True)).var(1)
    np.testing.assert_allclose(kernel(x), expected, rtol=1e-5)
    assert contractions(kernel) == ([], [])
