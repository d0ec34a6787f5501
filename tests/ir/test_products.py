import math

import numpy as np
import pytest

from redlang.ir.build import Builder, ref
from redlang.ir.evaluate import Scope
from redlang.ir.products import contract, find_product, volume
from redlang.ir.tiles import Tile
from redlang.ir.types import F64, I8, Type

B = Builder(("m", "n", "k"))
M, N, K = (B.index(axis) for axis in B.order)
A = B.load("a", F64, [M, K])
W = B.load("w", F64, [K, N])
GAIN = B.load("gain", F64, [K])
SCALE = B.load("scale", F64, [N])
EXTENTS = {"m": 3, "n": 4, "k": 5}


def scope(precision="double", **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((3, 5)),
        "w": rng.standard_normal((5, 4)),
        "gain": rng.standard_normal(5),
        "scale": rng.standard_normal(4),
        **changes,
    }
    axes = {"a": ("m", "k"), "w": ("k", "n"), "gain": ("k",), "scale": ("n",)}
    return Scope(precision, B.order, EXTENTS, arrays, axes)


def found(expr, inner, condition=None):
    product = find_product(expr, condition, inner)
    assert product is not None
    return product


def contracted(expr, inner, condition=None):
    product = found(expr, inner, condition)
    return contract(product, ("k",), ("m", "n"), inner)


def test_factors_are_grouped_around_the_largest():
    inner = scope()
    written = B.mul(B.mul(B.mul(SCALE, A), GAIN), W)
    product = found(written, inner)
    assert {product.left.type.axes, product.right.type.axes} == {("m", "k"), ("n", "k")}
    a, w, gain, scale = (inner.arrays[name] for name in ("a", "w", "gain", "scale"))
    tile = contracted(written, inner)
    np.testing.assert_allclose(tile.data, (a * gain) @ w * scale, rtol=1e-13)
    assert tile.axes == ("m", "n")


def test_declared_precision_multiplies_in_the_order_written():
    product = found(B.mul(B.mul(SCALE, A), W), scope("declared"))
    assert product.left == B.mul(SCALE, A)
    assert product.right is W


def test_a_sum_without_a_product_is_none():
    assert find_product(B.exp(A), None, scope()) is None


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_is_left_to_the_general_way(poison):
    a = scope().arrays["a"].copy()
    a[1, 2] = poison
    assert contracted(B.mul(A, W), scope(a=a)) is None
    # Hidden in the factor that has the condition's axes, it is no obstacle.
    seen = B.apply("ne", K, 2)
    tile = contracted(B.mul(A, W), scope(a=a), seen)
    a[:, 2] = 0
    np.testing.assert_allclose(tile.data, a @ scope().arrays["w"], rtol=1e-13)


def test_a_condition_over_rows_and_columns_is_left_to_the_general_way():
    below = B.apply("le", N, M)
    assert contracted(B.mul(A, W), scope(), below) is None


def test_masks_around_the_product_are_conditions():
    seen = B.apply("lt", K, 3)
    inner = scope()
    tile = contracted(B.mask(seen, B.mul(A, W)), inner)
    np.testing.assert_allclose(tile.data, inner.arrays["a"][:, :3] @ inner.arrays["w"][:3])


def test_a_value_hides_a_pointwise_definition_of_its_name():
    name = ref("p", Type(F64, ("m", "k")))
    inner = scope()
    known = {"p": Tile(("m", "k"), np.ones((3, 5)))}
    hidden = Scope(
        "double", B.order, EXTENTS, inner.arrays, inner.array_axes, {}, known, {"p": B.mul(A, A)}
    )
    assert find_product(name, None, hidden) is None


@pytest.mark.parametrize("largest", [127, 2**40])
def test_integers_are_exact_and_wrap(largest):
    a = B.load("a", I8, [M, K])
    w = B.load("w", I8, [K, N])
    rng = np.random.default_rng(1)
    left = rng.integers(-largest, largest, (3, 5), endpoint=True)
    right = rng.integers(-largest, largest, (5, 4), endpoint=True)
    inner = Scope("double", B.order, EXTENTS, {"a": left, "w": right}, scope().array_axes)
    tile = contracted(B.mul(a, w), inner)
    exact = [
        [sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) for c in right.T] for r in left
    ]
    wrapped = [[(value + 2**63) % 2**64 - 2**63 for value in row] for row in exact]
    assert tile.data.dtype == np.int64
    assert tile.data.tolist() == wrapped


def test_volume_counts_each_axis_once():
    assert volume(("m", "k", "m"), scope()) == 15
    assert volume(("m", "k"), scope().with_windows({"k": (1, 3)})) == 6
