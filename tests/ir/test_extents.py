"""Extents from shapes: what is bound, and what each contradiction is called."""

import pytest

from redlang.errors import ArgumentError
from redlang.ir.extents import bind_extents
from tests.kernels import resolve_text


def extents(text, shapes, **scalars):
    return bind_extents(resolve_text(text), shapes, scalars)


GROUPED = 'def f(q: "b (g r) m", k: "b g") -> "b":\n    return sum[g, r, m](q * k)\n'
FIXED = 'def f(x: "m n=8") -> "m":\n    return sum[n](x)\n'
SHARED = 'def f(x: "m n", w: "n") -> "m":\n    return sum[n](x * w)\n'
RAGGED = 'def f(x: "(t g=128)") -> "t":\n    return sum[g](x)\n'
DECLARED = (
    'def f(x: "p", k: int) -> "n":\n    n = axis(16 * size(p) + k)\n    return n + sum[p](x)\n'
)
TOPK = 'def f(x: "t e") -> "t 4":\n    v, i = topk[e](x, 4)\n    return v\n'


def test_each_axis_gets_its_extent():
    assert extents(SHARED, {"x": (3, 4), "w": (4,)}) == {"m": 3, "n": 4}


def test_a_composite_gives_what_is_left_over():
    got = extents(GROUPED, {"q": (2, 12, 5), "k": (2, 3)})
    assert got == {"b": 2, "g": 3, "r": 4, "m": 5}


def test_an_empty_group_has_nothing_in_it():
    assert extents(GROUPED, {"q": (2, 0, 5), "k": (2, 0)})["r"] == 0


def test_a_ragged_dimension_counts_its_last_group():
    got = extents(RAGGED, {"x": (130,)})
    assert (got["(t g)"], got["t"], got["g"]) == (130, 2, 128)


def test_a_declared_axis_is_computed():
    assert extents(DECLARED, {"x": (2,)}, k=3)["n"] == 35


@pytest.mark.parametrize(
    ("text", "shapes", "scalars", "words"),
    [
        (SHARED, {"x": (3, 4), "w": (5,)}, {}, ("w has extent 5 along axis 'n'", "x has 4")),
        (SHARED, {"x": (3,), "w": (5,)}, {}, ("x has 1 dimension,", "shape (3,)", "'m n'")),
        (FIXED, {"x": (3, 7)}, {}, ("x has extent 7 along axis 'n'", "signature fixes to 8")),
        (
            GROUPED,
            {"q": (2, 7, 5), "k": (2, 3)},
            {},
            ("q has extent 7", "(g r)", "no multiple of g = 3", "k has g = 3", "of 6 or 9 fits"),
        ),
        (
            GROUPED,
            {"q": (2, 2, 5), "k": (2, 3)},
            {},
            ("q has extent 2", "no multiple of g = 3", "an extent of 3 fits"),
        ),
        (
            'def f(x: "b (g=4 c) t"):\n    return sum[c](x)\n',
            {"x": (2, 11, 3)},
            {},
            ("x has extent 11", "(g c)", "no multiple of g = 4", "hint: an extent of 8 or 12 fits"),
        ),
        (
            'def f(x: "(g h=2 c)", y: "g"):\n    return sum[h, c](x) + y\n',
            {"x": (11,), "y": (4,)},
            {},
            ("no multiple of 8: g = 4 times h = 2", "hint: y has g = 4: an extent of 8 or 16"),
        ),
        (
            'def f(x: "(g c)", y: "g c"):\n    return sum[c](x + y)\n',
            {"x": (11,), "y": (4, 2)},
            {},
            ("x has extent 11", "must be 8: g = 4 times c = 2", "y has g = 4, y has c = 2"),
        ),
        (DECLARED, {"x": (2,)}, {"k": -40}, ("axis n would have -8 elements",)),
        (DECLARED, {"x": (2,)}, {"k": 1 << 62}, (f"axis n would have {(1 << 62) + 32} elements",)),
        (TOPK, {"x": (2, 3)}, {}, ("axis e has 3 elements in x", "takes 4")),
    ],
)
def test_names_the_argument_and_the_sizes(text, shapes, scalars, words):
    with pytest.raises(ArgumentError) as caught:
        extents(text, shapes, **scalars)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.span is not None
