"""Reductions over several axes of what spreads over them."""

import numpy as np
import pytest

import redlang

DISTANCE = "sum[d]((x - y) ** 2)"


def of(value: str) -> redlang.Kernel:
    return redlang.compile(f'def f(x: "m d", y: "n d") -> "":\n    return {value}\n', {})


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x[:, None].astype(float) - y) ** 2).sum(-1)


@pytest.mark.parametrize(("rows", "columns"), [(40, 33), (1, 1), (5, 70)])
def test_means_and_extremes_of_pairs(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 8)).astype(np.float32)
    y = rng.normal(size=(columns, 8)).astype(np.float32)
    pairs = distances(x, y)
    near = np.exp(-pairs)
    np.testing.assert_allclose(of(f"mean[m, n](exp(-{DISTANCE}))")(x, y), near.mean(), rtol=1e-5)
    np.testing.assert_allclose(of(f"min[m, n]({DISTANCE})")(x, y), pairs.min(), rtol=1e-5)


def test_pairs_that_take_no_part_do_not_count() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 30, 4)).astype(np.float32)
    seen = np.tri(30, k=-1, dtype=bool)
    mean = of(f"mean[m, n](where(n < m, {DISTANCE}))")
    greatest = of(f"max[m, n](where(n < m, 0 - {DISTANCE}))")
    pairs = distances(x, y)
    np.testing.assert_allclose(mean(x, y), pairs[seen].mean(), rtol=1e-5)
    np.testing.assert_allclose(greatest(x, y), -pairs[seen].min(), rtol=1e-5)
    assert np.isnan(mean(x[:1], y[:1]))
    assert greatest(x[:1], y[:1]) == -np.inf


def test_units_share_the_rows_of_pairs() -> None:
    text = str(of(f"mean[m, n](exp(-{DISTANCE}))").explain("fuse"))
    assert "over n (inside another)" in text
    assert "over m:" in text


def test_one_sweep_over_all_axes_stays_one() -> None:
    softmax = redlang.compile(
        'def f(x: "m n") -> "m n":\n    p = exp(x - max[m, n](x))\n    return p / sum[m, n](p)\n',
        {},
    )
    assert "over m, n:" in str(softmax.explain("fuse"))


def test_products_of_three_are_two_sums_of_two() -> None:
    rng = np.random.default_rng(2)
    x, a, y = (rng.normal(size=s).astype(np.float32) for s in ((9, 7), (7, 5), (9, 5)))
    form = redlang.compile(
        'def f(x: "b i", a: "i j", y: "b j") -> "b":\n    return sum[i, j](x * a * y)\n', {}
    )
    right = np.einsum("bi,ij,bj->b", x, a, y, dtype=float)
    np.testing.assert_allclose(form(x, a, y), right, rtol=2e-5, atol=1e-5)
    assert "over i (inside another)" in str(form.explain("fuse"))
    infinite = a.copy()
    infinite[3, 2] = np.inf
    assert not np.isfinite(form(x, infinite, y)).any()
    assert (form(x[:, :0], a[:0], y) == 0).all()


@pytest.mark.parametrize("order", ["x * a * y", "y * (x * a)", "x * y * a", "a * y * x"])
@pytest.mark.parametrize("least", ["x", "a", "y"])
def test_factors_are_multiplied_in_the_order_of_the_text(order: str, least: str) -> None:
    large = {name: np.float32(1e-25 if name == least else 1e25) for name in "xay"}
    shapes = {"x": (2, 7), "a": (7, 5), "y": (2, 5)}
    text = f'def f(x: "b i", a: "i j", y: "b j") -> "b":\n    return sum[i, j]({order})\n'
    arrays = [np.full(shapes[name], large[name]) for name in "xay"]
    with np.errstate(over="ignore"):
        term = eval(order, None, large)
    np.testing.assert_allclose(redlang.compile(text, {})(*arrays), 35 * term, rtol=1e-5)


def test_outer_products_are_summed_apart() -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((9, 7), (7, 5)))
    form = redlang.compile(
        'def f(x: "b i", w: "i j", y: "j") -> "b":\n    return sum[i, j](x * w * y)\n', {}
    )
    y = rng.normal(size=5).astype(np.float32)
    right = np.einsum("bi,ij,j->b", x, w, y, dtype=float)
    np.testing.assert_allclose(form(x, w, y), right, rtol=2e-5, atol=1e-5)


def test_weights_along_one_axis_leave_one_sweep() -> None:
    form = redlang.compile(
        'def f(x: "b i j", w: "i", v: "j") -> "b":\n    return sum[i, j](x * w * v)\n', {}
    )
    assert "over i, j:" in str(form.explain("fuse"))
