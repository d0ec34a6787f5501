"""Hoisting: psi around its element is the expression, it moves as said, and signs are required."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra import numbers
from redlang.algebra.monotone import NotMonotone, hoist
from redlang.algebra.numbers import Sampler, UndefinedError
from redlang.algebra.prove import outermost
from redlang.ir.program import Ref
from redlang.ir.types import F8E4M3, F16, I8
from tests.algebra.views import B, c, g, k, signs, u, v, view, x, y, z

KNOWN = {"z": "POSITIVE", "v": "NEGATIVE", "g": "POSITIVE"}


def hoisted(expr, **known):
    return hoist(expr, view(**known), signs(**known))


def is_ref(node):
    return isinstance(node, Ref)


HOISTS = {
    "difference": (B.sub(x, u), x, True),
    "difference the other way": (B.sub(u, x), x, False),
    "two elements in a sum": (B.add(B.sub(x, u), y), B.add(x, y), True),
    "positive factor": (B.mul(x, z), x, True),
    "negative factor": (B.mul(x, v), x, False),
    "divisor": (B.div(B.mul(x, y), z), B.mul(x, y), True),
    "weight": (B.div(B.exp(B.sub(x, u)), z), x, True),
    "falling twice": (B.neg(B.mul(x, v)), x, True),
    "magnitude of a product": (B.apply("abs", B.mul(x, z)), B.apply("abs", x), True),
    "constant": (B.add(B.mul(B.sub(x, u), 2.0), 1.0), B.add(B.mul(x, 2.0), 1.0), True),
    "clipped": (B.apply("clip", B.sub(x, u), 0.0, 1.0), x, True),
    "cube": (B.apply("pow", B.sub(x, u), 3), x, True),
    "square of what is positive": (B.apply("pow", B.mul(g, z), 2), B.mul(g, g), True),
    "reciprocal": (B.div(z, B.mul(g, z)), B.div(1.0, g), True),
    "rounding": (B.cast(B.mul(x, z), F16), x, True),
    "chosen by a context": (B.where(B.apply("gt", u, 0.0), B.sub(x, u), B.mul(x, z)), x, True),
    "logistic": (B.apply("sigmoid", B.sub(u, x)), x, False),
}


@pytest.mark.parametrize("name", HOISTS)
def test_finds_the_element_and_the_direction(name):
    expr, element, rising = HOISTS[name]
    found = hoisted(expr, **KNOWN)
    assert found.rising is rising
    assert found.element == element


DECLINED = {
    "unknown factor": B.mul(x, u),
    "unknown divisor": B.div(x, u),
    "square": B.apply("pow", B.sub(x, u), 2),
    "magnitude": B.apply("abs", B.sub(x, u)),
    "two elements around a context": B.add(B.mul(x, z), y),
    "product of elements with a context between": B.mul(B.sub(x, u), y),
    "rotation": B.apply("cos", B.sub(x, u)),
    "logarithm": B.apply("log", B.sub(x, u)),
    "chosen by an element": B.where(k, B.sub(x, u), x),
    "comparison": B.apply("gt", x, u),
    "integer cast": B.cast(B.mul(x, z), I8),
    "branches that move apart": B.where(B.apply("gt", u, 0.0), B.sub(x, u), B.sub(u, x)),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declines_what_may_not_be_monotone(name):
    with pytest.raises(NotMonotone) as caught:
        hoisted(DECLINED[name], **KNOWN)
    assert caught.value.reason


def test_a_factor_that_may_be_zero_is_not_strict():
    assert not hoisted(B.mul(x, B.mul(u, u))).strict
    assert hoisted(B.mul(x, z), **KNOWN).strict
    with pytest.raises(NotMonotone):
        hoisted(B.div(x, B.mul(u, u)))


def test_rounding_is_not_strict():
    assert not hoisted(B.cast(B.sub(x, u), F8E4M3)).strict


def test_names_the_signs_that_it_rests_on():
    assert hoisted(B.mul(x, z), **KNOWN).facts == ("z > 0",)


leaves = st.sampled_from([x, g, u, v, z, c])


def operations(parts):
    two = st.tuples(st.sampled_from(["add", "sub", "mul", "div"]), parts, parts)
    one = st.tuples(st.sampled_from(["neg", "exp", "abs", "tanh", "sqrt", "rsqrt", "log"]), parts)
    return st.one_of(two.map(lambda t: B.apply(*t)), one.map(lambda t: B.apply(*t)))


@settings(max_examples=200, deadline=None)
@given(st.recursive(leaves, operations, max_leaves=5))
def test_what_is_hoisted_moves_as_said(expr):
    look = view(**KNOWN)
    if not (look.varies(expr) and look.reads(expr)):
        return
    try:
        found = hoist(expr, look, signs(**KNOWN))
    except NotMonotone:
        return
    free = Ref("free", found.element.type)
    psi = found.psi(free)
    known, sampler = signs(**KNOWN), Sampler(2)
    sign = known.of(found.element)
    for _ in range(4):
        inputs = [n for n in outermost([psi], is_ref) if isinstance(n, Ref)]
        names = {n.name: sampler.draw(n, known.of(n)) for n in inputs}
        values = []
        for point in sorted((sampler.draw(free, sign), sampler.draw(free, sign))):
            table = {id(n): point if n.name == "free" else names[n.name] for n in inputs}
            try:
                values.append(numbers.evaluate(psi, table))
            except UndefinedError:
                break
        if len(values) == 2:
            low, high = values if found.rising else values[::-1]
            assert low <= high
