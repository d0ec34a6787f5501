"""Overlap by addresses, against NumPy's exact answer and against enumeration."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from redlang.runtime.interop import NUMPY
from redlang.runtime.overlap import byte_range, overlaps_itself, same_elements, share_memory

BASE = np.zeros(400, np.float32)


def of(array):
    return NUMPY.memory(array)


def share(a, b):
    return share_memory(of(a), of(b), a.itemsize, b.itemsize)


@st.composite
def views(draw):
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    strides = tuple(draw(st.integers(-12, 12)) for _ in range(rank))
    start = draw(st.integers(120, 280))
    return as_strided(BASE[start:], shape, tuple(4 * s for s in strides))


@given(views(), views())
def test_agrees_with_the_exact_answer(a, b):
    assert share(a, b) == np.shares_memory(a, b)


@given(views())
def test_finds_an_array_that_overlaps_itself(a):
    offsets = {
        sum(i * s for i, s in zip(index, a.strides, strict=True)) for index in np.ndindex(a.shape)
    }
    assert overlaps_itself(of(a)) == (len(offsets) < a.size)


def test_interleaved_views_share_nothing():
    assert not share(BASE[::2], BASE[1::2])
    assert share(BASE[::2], BASE[::3])


def test_ranges_of_negative_strides_reach_back():
    view = BASE[10:2:-2]
    low, high = byte_range(of(view), 4)
    start = BASE.__array_interface__["data"][0]
    assert (low - start, high - start) == (16, 44)


def test_a_large_broadcast_overlaps_itself():
    assert overlaps_itself(of(np.broadcast_to(np.float32(1), (10**6, 10**6))))
    assert not overlaps_itself(of(np.zeros((2000, 2000), np.int8).T))


def test_the_same_elements_are_the_same_view():
    assert same_elements(of(BASE), of(BASE[:]))
    assert not same_elements(of(BASE), of(BASE[::-1]))
    assert not same_elements(of(BASE), of(BASE[1:]))
    assert not same_elements(of(BASE), of(BASE.view(np.int32)))
    assert same_elements(of(BASE.reshape(1, 400)), of(BASE[None, ::1]))
