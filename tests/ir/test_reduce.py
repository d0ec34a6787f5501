import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir import reduce as reducing
from redlang.ir.build import Builder, literal, ref
from redlang.ir.evaluate import Scope
from redlang.ir.numerics import Precision
from redlang.ir.reduce import Reduction, combine, partial, reduce
from redlang.ir.tiles import Tile
from redlang.ir.types import F32, F64, I32
from tests.ir.sweeps import AFFINE

B = Builder(("b", "m", "n", "d", "j"))
EXTENTS = {"b": 2, "m": 3, "n": 5, "d": 4, "j": 3}
I = B.index  # noqa: E741  # short, since every operand below is written with it
Q = B.load("q", F64, [I("b"), I("m"), I("d")])
K = B.load("k", F64, [I("b"), I("n"), I("d")])
X = B.load("x", F64, [I("m"), I("n")])
BELOW = B.apply("le", I("n"), I("m"))


def scope(precision="double", **changes):
    rng = np.random.default_rng(1)
    arrays = {
        "q": rng.standard_normal((2, 3, 4)),
        "k": rng.standard_normal((2, 5, 4)),
        "x": rng.standard_normal((3, 5)),
    }
    axes = {"q": ("b", "m", "d"), "k": ("b", "n", "d"), "x": ("m", "n")}
    defaults = {"arrays": arrays, "array_axes": axes}
    return Scope(precision, B.order, EXTENTS, **{**defaults, **changes})


def with_x(x, **changes):
    x = np.asarray(x, np.float64)
    extents = {**EXTENTS, "m": x.shape[0], "n": x.shape[1]}
    return Scope("double", B.order, extents, {"x": x}, {"x": ("m", "n")}, **changes)


def only(node, inner):
    (tile,) = reduce(node, inner)
    return tile


def test_a_contraction_is_numpys():
    inner = scope()
    tile = only(B.reduce("sum", ("d",), B.mul(Q, K)), inner)
    expected = np.einsum("bmd,bnd->bmn", inner.arrays["q"], inner.arrays["k"])
    assert tile.axes == ("b", "m", "n")
    np.testing.assert_allclose(tile.data, expected, rtol=1e-14)


def test_a_contraction_over_axes_that_one_factor_lacks():
    # d is summed although k alone has n and q alone has m; b stands in both and is summed too.
    inner = scope()
    tile = only(B.reduce("sum", ("b", "d"), B.mul(Q, K)), inner)
    expected = np.einsum("bmd,bnd->mn", inner.arrays["q"], inner.arrays["k"])
    np.testing.assert_allclose(tile.data, expected, rtol=1e-13)
    tile = only(B.reduce("sum", ("d", "n"), B.mul(Q, K)), inner)
    expected = np.einsum("bmd,bnd->bm", inner.arrays["q"], inner.arrays["k"])
    np.testing.assert_allclose(tile.data, expected, rtol=1e-13)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_contraction_shows_nothing_that_is_masked_out(poison):
    inner = scope()
    keys = inner.arrays["k"].copy()
    keys[:, 3:] = poison
    poisoned = scope(arrays={**inner.arrays, "k": keys})
    product = B.mul(B.apply("exp", X), K)
    seen = B.apply("lt", I("n"), 3)
    for node in (
        B.reduce("sum", ("n",), product, condition=seen),
        B.reduce("sum", ("n",), B.mask(seen, product)),
        B.reduce("sum", ("n",), B.mul(B.exp(B.mask(seen, X)), K)),
    ):
        tile = only(node, poisoned)
        expected = np.einsum("mn,bnd->bmd", np.exp(inner.arrays["x"][:, :3]), keys[:, :3])
        np.testing.assert_allclose(tile.data, expected, rtol=1e-14)


def test_a_visible_nan_or_infinity_reaches_only_its_own_sums():
    keys = np.ones((2, 5, 4))
    keys[0, 2, 1], keys[1, 0, 3] = math.nan, math.inf
    inner = scope(arrays={**scope().arrays, "k": keys, "x": np.zeros((3, 5))})
    data = only(B.reduce("sum", ("n",), B.mul(X, K)), inner).data
    assert np.isnan(data[0, :, 1]).all()
    assert np.isnan(data[1, :, 3]).all()
    assert np.isfinite(np.delete(data[0], 1, axis=1)).all()


@pytest.mark.parametrize("op", ["sum", "max", "argmax", "topk", "prod", "count", "any"])
@pytest.mark.parametrize("limit", [1, 7, 40])
def test_pieces_give_the_same_result(monkeypatch, op, limit):
    product = B.mul(B.mul(Q, K), X)
    operand = B.apply("gt", product, 0) if op in ("count", "any") else product
    k, new_axis = (3, "j") if op == "topk" else (None, None)
    node = B.reduce(op, ("n",), operand, condition=BELOW, k=k, new_axis=new_axis)
    whole = reduce(node, scope())
    monkeypatch.setattr(reducing, "LIMIT", limit)
    for one, other in zip(whole, reduce(node, scope()), strict=True):
        assert one.axes == other.axes
        np.testing.assert_array_equal(one.data, other.data)


def test_a_contraction_in_pieces(monkeypatch):
    node = B.reduce("sum", ("d",), B.mul(Q, K))
    whole = only(node, scope())
    monkeypatch.setattr(reducing, "LIMIT", 6)
    np.testing.assert_allclose(only(node, scope()).data, whole.data, rtol=1e-14)


def test_factors_are_found_through_pointwise_definitions():
    product = B.mul(Q, K)
    inner = scope(pointwise={"p": product})
    tile = only(B.reduce("sum", ("d",), ref("p", product.type)), inner)
    assert tile.data.tolist() == only(B.reduce("sum", ("d",), product), scope()).data.tolist()


def test_an_axis_that_the_operand_lacks_counts_its_extent():
    below = B.apply("lt", I("n"), I("m"))
    row = B.load("x", F64, [I("m"), literal(0)])
    total = only(B.reduce("sum", ("n",), row, condition=below), scope())
    expected = scope().arrays["x"][:, 0] * np.arange(3)
    np.testing.assert_allclose(total.data, expected, rtol=1e-15)


def test_several_axes_are_reduced_row_major_in_the_order_written():
    x = [[1, 9, 9], [9, 0, 0]]
    first = [tile.data.item() for tile in reduce(B.reduce("argmax", ("m", "n"), X), with_x(x))]
    assert first == [0, 1]
    swapped = [tile.data.item() for tile in reduce(B.reduce("argmax", ("n", "m"), X), with_x(x))]
    assert swapped == [0, 1]
    values, rows, columns = reduce(B.reduce("topk", ("m", "n"), X, k=3, new_axis="j"), with_x(x))
    assert values.data.tolist() == [9, 9, 9]
    assert rows.data.tolist() == [0, 0, 1]
    assert columns.data.tolist() == [1, 2, 0]


def test_nothing_visible_gives_minus_one_along_every_axis():
    never = B.apply("lt", I("n"), 0)
    node = B.reduce("argmin", ("m", "n"), X, condition=never)
    assert [tile.data.item() for tile in reduce(node, scope())] == [-1, -1]
    node = B.reduce("topk", ("m", "n"), X, condition=never, k=2, new_axis="j")
    assert [tile.data.tolist() for tile in reduce(node, scope())] == [
        [-math.inf] * 2,
        *[[-1] * 2] * 2,
    ]


def test_conditions_and_absence_both_hide():
    seen = B.apply("ge", I("n"), 1)
    masked = B.mask(seen, X)
    node = B.reduce("count", ("n",), B.apply("lt", masked, 100), condition=BELOW)
    assert only(node, scope()).data.tolist() == [0, 1, 2]
    absent = B.apply("gt", B.mask(B.apply("lt", I("n"), 4), X), -100)
    node = B.reduce("count", ("n",), B.apply("lt", X, 100), condition=absent)
    assert only(node, scope()).data.tolist() == [4, 4, 4]


def test_sums_of_integers_and_truth_values():
    counts = B.load("c", I32, [I("n")])
    large = np.array([2**31 - 1] * 3, np.int32)
    inner = Scope("double", B.order, {"n": 3}, {"c": large}, {"c": ("n",)})
    assert only(B.reduce("sum", ("n",), counts), inner).data == 3 * (2**31 - 1)
    assert only(B.reduce("sum", ("n",), B.apply("gt", counts, 0)), inner).data == 3


def test_declared_precision_accumulates_in_the_declared_type():
    values = B.load("c", F32, [I("n")])
    data = np.full(3, 3e38, np.float32)
    expected: dict[Precision, float] = {"double": 9e38, "declared": math.inf}
    for precision, total in expected.items():
        inner = Scope(precision, B.order, {"n": 3}, {"c": data}, {"c": ("n",)})
        (tile,) = reduce(B.reduce("sum", ("n",), values), inner)
        assert tile.data == pytest.approx(total, rel=1e-6)


def recurrence(gate, x, state=0.0):
    for a, b in zip(gate, x, strict=True):
        state = a * state + b
    return state


@given(st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_monoid_folds_in_order_and_skips_what_is_hidden(n, random):
    gate = np.array([[random.uniform(-2, 2) for _ in range(n)]])
    x = np.array([[random.uniform(-2, 2) for _ in range(n)]])
    hidden = np.array([random.random() < 0.3 for _ in range(n)], np.bool_)
    gate[0, hidden] = np.nan
    inner = Scope(
        "double",
        B.order,
        {"m": 1, "n": n},
        {"g": gate, "x": x, "h": hidden},
        {"g": ("m", "n"), "x": ("m", "n"), "h": ("n",)},
    )
    operands = (B.load("g", F64, [I("m"), I("n")]), X)
    hide = B.apply("eq", B.load("h", I32, [I("n")]), 0)
    node = B.reduce("monoid", ("n",), *operands, condition=hide, monoid=AFFINE)
    expected = recurrence(gate[0, ~hidden], x[0, ~hidden])
    np.testing.assert_allclose(only(node, inner).data, [expected], rtol=1e-12, atol=1e-12)


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, 2.0, -3.0]
PARTIALS = ["sum", "max", "min", "count", "any", "argmax", "argmin", "topk", "mantissa", "monoid"]


@given(
    st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=12),
    st.sampled_from(PARTIALS),
    st.data(),
)
def test_partial_results_of_windows_combine_to_the_whole(values, op, data):
    n = len(values)
    cut = data.draw(st.integers(0, n))
    inner = with_x([values])
    operand = B.apply("gt", X, 0) if op in ("count", "any") else X
    operands = (X, X) if op == "monoid" else (operand,)
    k = 3 if op == "topk" else None
    monoid = AFFINE if op == "monoid" else None
    node = Reduction(op, ("n",), operands, None, k, "j", monoid)
    left, right = (
        partial(node, inner.with_windows({"n": window})) for window in ((0, cut), (cut, n))
    )
    joined = combine(op, left, right, inner, k=k, slot="j", monoid=monoid)
    whole = partial(node, inner)
    for a, b in zip(joined, whole, strict=True):
        assert a.axes == b.axes
        if op == "mantissa" or (op == "monoid" and not np.isfinite(b.data).all()):
            continue
        np.testing.assert_allclose(a.data, b.data, rtol=1e-12)


def test_an_initial_list_is_one_value_for_all_slots():
    start = (Tile((), np.array(-math.inf)), Tile((), np.array(-1)))
    node = Reduction("topk", ("n",), (X,), None, 3, "j")
    parts = partial(node, with_x([[1.0, 5.0]]))
    joined = combine("topk", start, parts, with_x([[1.0, 5.0]]), k=3, slot="j")
    assert joined[1].data.tolist() == [[1, 0, -1]]
    assert joined[0].axes == ("m", "j")


def test_indices_of_a_window_count_over_the_whole_extent():
    inner = with_x(np.arange(12.0).reshape(3, 4))
    node = Reduction("argmax", ("m", "n"), (X,))
    _, index = partial(node, inner.with_windows({"m": (1, 2), "n": (1, 3)}))
    assert index.data == 6
    assert index.data.dtype == np.int64
