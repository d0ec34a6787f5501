import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir.tiles import Tile, aligned, cut, expanded, merged_axes, present_in_all, spread

ORDER = ("a", "b", "c", "d")
EXTENTS = {"a": 2, "b": 3, "c": 1, "d": 5}

axes_in_any_order = st.permutations(ORDER).flatmap(
    lambda axes: st.integers(0, 4).map(lambda n: tuple(axes[:n]))
)


def numbered(axes):
    shape = [EXTENTS[axis] for axis in axes]
    return np.arange(int(np.prod(shape))).reshape(shape)


def test_axes_are_merged_in_the_kernels_order_and_unknown_ones_come_last():
    assert merged_axes(ORDER, [("d", "z"), ("a",)]) == ("a", "d", "z")


@given(axes_in_any_order)
def test_spreading_moves_every_element_to_its_named_place(axes):
    array = numbered(axes)
    wide = spread(array, axes, ORDER)
    assert wide.ndim == len(ORDER)
    for place in np.ndindex(*array.shape):
        index = dict(zip(axes, place, strict=True))
        assert wide[tuple(index.get(axis, 0) for axis in ORDER)] == array[place]


@given(axes_in_any_order)
def test_spreading_is_a_view(axes):
    array = numbered(axes)
    assert np.shares_memory(spread(array, axes, ORDER), array)


def test_cutting_keeps_only_the_window_of_whole_dimensions():
    whole = Tile(("b", "d"), numbered(("b", "d")), np.ones((3, 1), np.bool_))
    part = cut(whole, {"d": (1, 3), "b": (0, 3)}, EXTENTS)
    assert part.data.tolist() == [[1, 2], [6, 7], [11, 12]]
    assert part.visible.shape == (3, 1)
    # A value of the current window has its length already.
    assert cut(part, {"d": (1, 3)}, EXTENTS).data.tolist() == part.data.tolist()


def test_expanding_repeats_along_dimensions_of_extent_one():
    tile = Tile(("a",), np.array([7, 8]), np.array([True, False]))
    wide = expanded(tile, ("a", "b"), EXTENTS)
    assert wide.data.tolist() == [[7] * 3, [8] * 3]
    assert wide.visible.tolist() == [[True] * 3, [False] * 3]


def test_an_element_is_present_where_all_operands_are():
    a = Tile(("a",), np.zeros(2), np.array([True, False]))
    b = Tile(("a",), np.zeros(2), np.array([True, True]))
    plain = Tile(("a",), np.zeros(2))
    assert present_in_all([plain, plain]) is None
    both = present_in_all([a, plain, b])
    assert both is not None
    assert both.tolist() == [True, False]
    assert plain.visible.tolist() == [True]
    assert aligned(a, ("a", "b")).visible.shape == (2, 1)
