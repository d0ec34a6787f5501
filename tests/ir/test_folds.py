import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir.folds import combine, fold, tree

OPS = ["sum", "prod", "max", "min", "any", "all", "count", "argmax", "argmin", "topk", "mantissa"]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, 2.0, -3.0]


@pytest.fixture(autouse=True)
def silent():
    with np.errstate(all="ignore"):
        yield


@st.composite
def rows(draw, least=0):
    n = draw(st.integers(least, 9))
    values = draw(st.lists(st.sampled_from(SPECIAL), min_size=n, max_size=n))
    visible = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return np.array(values, np.float64), np.array(visible, np.bool_)


def items(*arguments):
    return [part.item() for part in fold(*arguments)]


def only(*arguments):
    (item,) = items(*arguments)
    return item


def same(left, right):
    """Assert equality with NaN equal to itself and -0 different from +0."""
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)
        if np.asarray(a).dtype.kind == "f":
            nan = np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a) & ~nan, np.signbit(b) & ~nan)


@given(rows(), st.sampled_from(OPS))
def test_what_is_not_visible_never_shows(row, op):
    values, visible = row
    hidden = fold(op, values, visible, k=3)
    poisoned = fold(op, np.where(visible, values, np.nan), visible, k=3)
    same(hidden, poisoned)


@given(rows(), st.sampled_from([op for op in OPS if op not in ("argmax", "argmin", "topk")]))
def test_hiding_elements_is_the_same_as_leaving_them_out(row, op):
    values, visible = row
    left_out = fold(op, values[visible], None)
    if op in ("sum", "prod", "mantissa"):
        # The sign of a zero may depend on the neutral elements, as may the exponent of a NaN.
        left, right = _pair(fold(op, values, visible)), _pair(left_out)
        np.testing.assert_array_equal(np.ldexp(*left), np.ldexp(*right))
    else:
        same(fold(op, values, visible), left_out)


def part_of(op, values, visible, start, k=3):
    """Fold a part of a row, with positions counted from the row's start."""
    parts = fold(op, values, visible, k)
    if op in ("argmax", "argmin", "topk"):
        return parts[0], np.where(parts[1] < 0, -1, parts[1] + start)
    return parts


@given(rows(), st.sampled_from(OPS), st.data())
def test_any_cut_gives_the_same_result(row, op, data):
    values, visible = row
    cut = data.draw(st.integers(0, len(values)))
    left = part_of(op, values[:cut], visible[:cut], 0)
    right = part_of(op, values[cut:], visible[cut:], cut)
    whole, joined = part_of(op, values, visible, 0), combine(op, left, right, k=3)
    if op == "sum":
        np.testing.assert_array_equal(whole[0], joined[0])
    elif op in ("prod", "mantissa"):
        np.testing.assert_array_equal(np.ldexp(*_pair(whole)), np.ldexp(*_pair(joined)))
    else:
        same(whole, joined)


def _pair(parts):
    return parts if len(parts) == 2 else (parts[0], 0)


@given(rows(), rows(), rows(), st.sampled_from([op for op in OPS if op != "sum"]))
def test_combining_is_associative(a, b, c, op):
    starts = (0, len(a[0]), len(a[0]) + len(b[0]))
    x, y, z = (
        part_of(op, values, visible, start)
        for (values, visible), start in zip((a, b, c), starts, strict=True)
    )
    left = combine(op, combine(op, x, y, k=3), z, k=3)
    right = combine(op, x, combine(op, y, z, k=3), k=3)
    if op in ("prod", "mantissa"):
        np.testing.assert_array_equal(np.ldexp(*_pair(left)), np.ldexp(*_pair(right)))
    else:
        same(left, right)


@given(rows(), st.sampled_from(OPS))
def test_nothing_is_neutral_on_both_sides(row, op):
    values, visible = row
    empty = fold(op, values[:0], None, k=3)
    parts = fold(op, values, visible, k=3)
    for joined in (combine(op, parts, empty, k=3), combine(op, empty, parts, k=3)):
        if op in ("sum", "prod", "mantissa"):
            np.testing.assert_array_equal(np.ldexp(*_pair(joined)), np.ldexp(*_pair(parts)))
        else:
            same(joined, parts)


@pytest.mark.parametrize(
    ("op", "identity"),
    [("sum", 0), ("prod", 1), ("max", -math.inf), ("min", math.inf), ("count", 0)],
)
def test_identities(op, identity):
    assert only(op, np.zeros(0), None) == identity
    assert only(op, np.full(4, np.nan), np.zeros(4, np.bool_)) == identity


def test_identities_of_truth_values_indices_and_lists():
    nothing = np.zeros(0)
    assert not only("any", nothing, None)
    assert only("all", nothing, None)
    assert items("argmax", nothing, None) == [-math.inf, -1]
    assert items("argmin", nothing, None) == [math.inf, -1]
    values, places = fold("topk", nothing, None, k=2)
    assert values.tolist() == [-math.inf] * 2
    assert places.tolist() == [-1, -1]
    assert only("max", np.zeros(0, np.int64), None) == -(2**63)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_visible_nan_propagates(op, place):
    row = np.array([1.0, 2.0, 3.0])
    row[place] = np.nan
    assert np.isnan(fold(op, row, None)[0])


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_nan_is_found_first_and_the_first_index_wins(op):
    assert fold(op, np.array([math.inf, math.nan, math.nan]), None)[1] == 1
    assert fold(op, np.array([math.nan, -math.inf]), None)[1] == 0
    assert fold(op, np.array([3.0, 3.0]), None)[1] == 0
    # Zeros of both signs are equal to an arg-reduction.
    assert fold(op, np.array([-0.0, 0.0]), None)[1] == 0
    assert fold(op, np.array([0.0, -0.0]), None)[1] == 0


def test_a_visible_infinity_is_not_an_absent_element():
    values = np.array([5.0, -math.inf, 7.0])
    assert fold("argmax", values, np.array([False, True, False]))[1] == 1
    top, places = fold("topk", values, np.array([False, True, False]), k=2)
    assert top.tolist() == [-math.inf, -math.inf]
    assert places.tolist() == [1, -1]


@pytest.mark.parametrize("zeros", [(-0.0, 0.0), (0.0, -0.0)])
def test_zeros_are_ordered_by_their_sign(zeros):
    row = np.array(zeros)
    assert not np.signbit(fold("max", row, None)[0])
    assert np.signbit(fold("min", row, None)[0])
    assert np.signbit(fold("max", row, row.view(np.int64) != 0)[0])


def test_topk_puts_nan_first_then_descends_with_ties_in_order():
    values, places = fold("topk", np.array([1.0, math.nan, 3.0, 1.0, 3.0]), None, k=4)
    assert places.tolist() == [1, 2, 4, 0]
    assert values[1:].tolist() == [3, 3, 1]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8), st.integers(1, 10))
def test_topk_of_integers_is_exact(numbers, k):
    values, places = fold("topk", np.array(numbers, np.int64), None, k=k)
    expected = sorted(range(len(numbers)), key=lambda i: (-numbers[i], i))[:k]
    found = [int(place) for place in places if place >= 0]
    assert found == expected
    assert values[: len(found)].tolist() == [numbers[i] for i in found]


def test_integers_wrap_and_truth_values_are_counted():
    largest = np.array([2**63 - 1, 1])
    assert only("sum", largest, None) == -(2**63)
    assert only("sum", np.array([2**64 - 1, 2], np.uint64), None) == 1
    assert only("sum", np.array([True, True, True]), np.array([True, False, True])) == 2
    assert only("count", np.array([True, True, False]), None) == 2


def test_a_product_neither_overflows_nor_underflows_on_the_way():
    row = np.array([1e300] * 9 + [1e-300] * 9)
    assert math.isclose(fold("prod", row, None)[0], 1, rel_tol=1e-14)
    assert math.isclose(fold("prod", np.full(5000, 0.5), None)[0], 0)
    mantissa, exponent = fold("mantissa", np.full(5000, 0.5), None)
    assert (mantissa.item(), exponent.item()) == (0.5, -4999)
    assert np.isnan(fold("prod", np.array([0.0, math.inf]), None)[0])


@given(st.integers(1, 4000))
def test_sums_stay_within_their_bound(n):
    terms = np.random.default_rng(n).standard_normal(n)
    exact = math.fsum(terms)
    bound = (16 + math.log2(n)) * np.finfo(np.float64).eps * math.fsum(np.abs(terms))
    assert abs(fold("sum", terms, None)[0] - exact) <= bound


def test_rows_are_reduced_side_by_side():
    values = np.arange(12.0).reshape(3, 4)
    visible = np.array([True, True, True, False])
    assert fold("max", values, visible)[0].tolist() == [2, 6, 10]
    assert fold("argmax", values, visible)[1].tolist() == [2, 2, 2]
    assert fold("topk", values, visible, k=2)[1].tolist() == [[2, 1]] * 3


@given(st.lists(st.tuples(st.text("ab", max_size=2), st.booleans()), max_size=9))
def test_a_tree_keeps_order_and_needs_no_commutativity(elements):
    words = np.array([[word for word, _ in elements]], dtype=object)
    visible = np.array([[seen for _, seen in elements]], dtype=np.bool_)
    words = words.reshape(1, len(elements))
    joined = tree(
        (words,), visible.reshape(1, -1), lambda a, b: (a[0] + b[0],), (np.array("", object),)
    )
    assert joined[0].tolist() == ["".join(word for word, seen in elements if seen)]


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="'median'"):
        fold("median", np.zeros(1), None)
    with pytest.raises(ValueError, match="'median'"):
        combine("median", (np.zeros(1),), (np.zeros(1),))
