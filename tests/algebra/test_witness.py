"""Witnesses really break what they are witnesses against; where there is none, none is found."""

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra import numbers
from redlang.algebra.witness import CAP, EXACT, Search, independent
from redlang.ir import walk
from tests.algebra.views import B, signs, u, v, view, x, y, z


def search(expr, **known):
    look = view(**known)
    return Search(look.pool.intern(expr), look, signs(**known))


def value(expr, values):
    """Evaluate with values by the leaves' names."""
    table = {}
    for node in walk.nodes(expr):
        if hasattr(node, "name") and node.name in values:
            table[id(node)] = numbers.context().mpf(values[node.name])
    result = numbers.evaluate(expr, table)
    return numbers.context().mpf(int(result)) if isinstance(result, bool) else result


OPEN = {
    "magnitude": B.apply("abs", B.sub(x, u)),
    "ramp": B.apply("maximum", B.sub(x, u), 0.0),
    "logistic": B.apply("sigmoid", B.sub(x, u)),
    "exponential of a product": B.exp(B.mul(x, u)),
    "reciprocal": B.div(1.0, B.add(B.mul(x, x), B.exp(u))),
    "step": B.where(B.apply("gt", x, u), x, 0.0),
    "tie": B.where(B.apply("eq", x, u), 1.0, 0.0),
    "two contexts": B.exp(B.mul(B.sub(x, u), v)),
}


@pytest.mark.parametrize("name", OPEN)
def test_the_matrix_of_a_witness_has_full_rank(name):
    expr = OPEN[name]
    witness = search(expr).rank()
    assert witness is not None
    assert len(witness.elements) == len(witness.contexts) == CAP + 1
    matrix = [
        [value(expr, {**dict(element), **dict(context)}) for context in witness.contexts]
        for element in witness.elements
    ]
    with mpmath.workdps(60):
        assert mpmath.det(mpmath.matrix(matrix)) != 0


CLOSED = {
    "exponential": B.exp(B.sub(x, u)),
    "square": B.apply("pow", B.sub(x, u), 2),
    "fourth power": B.apply("pow", B.sub(x, u), 4),
    "rotation": B.apply("cos", B.mul(B.add(x, u), 3.0)),
    "product": B.mul(B.mul(x, u), B.sub(y, v)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_closed_has_no_witness(name):
    assert search(CLOSED[name]).rank() is None


@pytest.mark.parametrize(
    "expr", [B.mul(x, u), B.apply("abs", B.sub(x, u)), B.add(B.mul(x, u), y)], ids=str
)
def test_the_elements_of_a_witness_swap(expr):
    witness = search(expr).order()
    assert witness is not None
    first, second = (
        [value(expr, {**dict(element), **dict(context)}) for element in witness.elements]
        for context in witness.contexts
    )
    assert (first[0] > first[1]) != (second[0] > second[1])


def test_known_signs_leave_no_witness():
    assert search(B.mul(x, z), z="POSITIVE").order() is None
    assert search(B.mul(x, z)).order() is not None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(-4, 4), min_size=4, max_size=4), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_full_pivoting_finds_the_rank(rows, size):
    matrix = [[numbers.context().mpf(entry) for entry in row] for row in rows]
    exact = mpmath.matrix(rows)
    rank = sum(1 for s in mpmath.svd_r(exact, compute_uv=False) if s > 1e-9)
    found = independent(matrix, size, EXACT)
    assert (found is not None) == (rank >= size)
    if found is not None:
        part = mpmath.matrix([[rows[i][j] for j in found[1]] for i in found[0]])
        assert abs(mpmath.det(part)) > 1e-9
