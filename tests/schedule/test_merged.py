"""Axes that are one in memory: which they are, and in which calls."""

import pytest

from redlang.ir.normalise import normalise
from redlang.ir.verify import verify
from redlang.schedule.merged import is_adjacent, merged_across
from redlang.schedule.views import all_extents, all_strides
from tests.kernels import resolve_text


def across(text):
    found, pairs = merged_across(normalise(resolve_text(text)))
    verify(found, "normalised")
    return [axis.name for axis in found.axes if "." in axis.name], pairs


ONE = {
    "planes": ('def f(x: "b c h w") -> "b c":\n    return mean[h, w](x)\n', ["h.w"]),
    "everything": ('def f(x: "m n") -> "":\n    return sum[m, n](x)\n', ["m.n"]),
    "a map": (
        'def f(x: "b m n", y: "b m n") -> "b m n":\n    return x + y\n',
        ["m.n", "b.m.n"],
    ),
    "columns": (
        'def f(x: "b c h w") -> "b c h w":\n    return x / sum[c](x)\n',
        ["h.w"],
    ),
    "channels last": ('def f(x: "b h w c") -> "b c":\n    return max[h, w](x)\n', ["h.w"]),
    "parts of dimensions": (
        'def f(x: "b (g c) h", w: "g") -> "b g":\n    return w * sum[c, h](x)\n',
        ["c.h"],
    ),
}

APART = {
    "a ragged dimension": 'def f(x: "b (g c=4) h") -> "b g":\n    return sum[c, h](x)\n',
    "rows": 'def f(x: "m n") -> "m":\n    return sum[n](x)\n',
    "rows of a batch": 'def f(x: "b m n") -> "b m":\n    return sum[n](x)\n',
    "a weight for each column": 'def f(x: "m n", w: "n") -> "":\n    return sum[m, n](x * w)\n',
    "an index": 'def f(x: "m n") -> "":\n    return sum[m, n](x * n)\n',
    "a place": 'def f(x: "m n") -> "m":\n    i, j = argmax[m, n](x)\n    return i + m\n',
    "neighbours": 'def f(x: "m n") -> "":\n    return sum[m, n](x[m, n + 1])\n',
    "another order": 'def f(x: "m n", y: "n m") -> "":\n    return sum[m, n](x * y)\n',
}


@pytest.mark.parametrize("name", ONE)
def test_neighbours_become_one(name):
    text, expected = ONE[name]
    found, pairs = across(text)
    assert found == expected
    assert len(pairs) == len(expected)


@pytest.mark.parametrize("name", APART)
def test_what_is_told_apart_stays_apart(name):
    assert across(APART[name]) == ([], ())


def test_what_lies_apart_in_memory_is_not_one():
    text = 'def f(x: "b h w") -> "b h w":\n    return x * 2\n'
    program = normalise(resolve_text(text))
    whole, pairs = merged_across(program)
    assert pairs == (("h", "w"), ("b", "h"))
    extents = {"b": 3, "h": 5, "w": 7}
    rows = {"b": 35, "h": 7, "w": 1}

    def one(x, extents=extents):
        strides = all_strides(program, {"x": x, "result.0": rows}, extents)
        return all(is_adjacent(*pair, strides, extents) for pair in pairs)

    assert one(rows)
    assert not one({"b": 40, "h": 8, "w": 1})
    assert not one({"b": 42, "h": 7, "w": 1})
    assert not one({"b": 35, "h": -7, "w": 1})
    assert not one({"b": 35, "h": 1, "w": 5})
    # Nobody steps along an axis of one element.
    assert one({"b": 99, "h": 7, "w": 1}, {"b": 1, "h": 5, "w": 7})
    every = all_extents(whole, extents)
    assert every["b.h.w"] == 105
    known = all_strides(whole, {"x": rows, "result.0": rows}, every)
    (view,) = (name for name in known if name.endswith("b.h.w"))
    assert known[view] == known["result.0"] == {"b.h.w": 1}
