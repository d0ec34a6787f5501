"""Interval analysis of predicates: `possible` and `certain` against all elements of a tile."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir.build import Builder, literal
from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.program import Ref
from redlang.ir.tiles import Tile
from redlang.ir.types import I32, I64, Type
from redlang.schedule.bounds import Knowledge, bound, certain, possible

B = Builder(("m", "n"))
EXTENTS = {"m": 40, "n": 40}
ARRAYS: dict[str, np.ndarray] = {
    "x": np.random.default_rng(0).integers(-20, 60, 40),
    "y": np.repeat(np.arange(5, dtype=np.int32), 8),
}


def integers():
    leaf = st.one_of(
        st.just(B.index("m")),
        st.just(B.index("n")),
        st.just(B.size("n")),
        st.sampled_from([B.load("x", I64, [B.index("m")]), B.load("y", I32, [B.index("n")])]),
        st.integers(-20, 60).map(literal),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["add", "sub", "minimum", "maximum"]), inner, inner).map(
                lambda t: B.apply(*t)
            ),
            st.tuples(st.sampled_from(["mul", "floordiv"]), inner, st.integers(1, 7)).map(
                lambda t: B.apply(*t)
            ),
            inner.map(B.neg),
        ),
        max_leaves=5,
    )


def predicates():
    comparison = st.tuples(
        st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), integers(), integers()
    ).map(lambda t: B.apply(*t))
    return st.recursive(
        comparison,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(lambda t: B.apply(*t)),
            inner.map(lambda e: B.apply("not", e)),
        ),
        max_leaves=4,
    )


def ranges():
    return st.tuples(st.integers(0, 39), st.integers(1, 20)).map(
        lambda t: (t[0], min(40, t[0] + t[1]))
    )


def scope_of(m, n):
    windows = {"m": m, "n": n}
    values = {
        f"{axis}.{end}": Tile((), np.array(value, np.int64))
        for axis, (first, stop) in windows.items()
        for end, value in (("first", first), ("last", stop - 1))
    }
    for name, (first, stop) in zip(ARRAYS, (m, n), strict=True):
        held = ARRAYS[name][first:stop]
        for end, value in (("least", held.min()), ("greatest", held.max())):
            values[f"{name}.{end}"] = Tile((), np.array(value, np.int64))
    axes = {"x": ("m",), "y": ("n",)}
    return Scope(
        "double", B.order, EXTENTS, ARRAYS, array_axes=axes, values=values, windows=windows
    )


def ends(load):
    return tuple(Ref(f"{load.array}.{end}", Type(I64)) for end in ("least", "greatest"))


STORED = Knowledge(range=ends)


@given(predicates(), ranges(), ranges())
def test_bounds_agree_with_every_element(predicate, m, n):
    scope = scope_of(m, n)
    truth = np.asarray(evaluate(predicate, scope).data)
    some, every = possible(predicate, B, STORED), certain(predicate, B, STORED)
    if some is not None and not evaluate(some, scope).data:
        assert not truth.any()
    if every is not None and evaluate(every, scope).data:
        assert truth.all()


def test_causal_tiles_are_told_apart():
    causal = B.apply("le", B.index("n"), B.index("m"))
    some, every = possible(causal, B), certain(causal, B)
    assert some is not None
    assert every is not None
    cases = itertools.product(((0, 8), (8, 16), (16, 24)), repeat=2)
    found = {
        (m[0], n[0]): (
            bool(evaluate(some, scope_of(m, n)).data),
            bool(evaluate(every, scope_of(m, n)).data),
        )
        for m, n in cases
    }
    assert found[8, 16] == (False, False)
    assert found[8, 8] == (True, False)
    assert found[16, 0] == (True, True)


def test_what_depends_on_data_is_unknown():
    data = B.apply("lt", Ref("x", B.index("n").type), B.index("n"))
    assert possible(data, B) is None
    both = B.apply("and", data, B.apply("le", B.index("n"), B.index("m")))
    assert possible(both, B) is not None
    assert certain(both, B) is None


def test_bounds_are_named_after_their_axis():
    assert bound("n", "first").name == "n.first"
