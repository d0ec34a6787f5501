"""Separation: terms multiply out to what they came from, and what mixes otherwise is declined."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra import numbers
from redlang.algebra.numbers import Sampler, UndefinedError
from redlang.algebra.prove import close, outermost
from redlang.algebra.separate import MAX_POWER, NotSeparable, Separation
from redlang.algebra.terms import apply_factor, factors_of
from redlang.ir.program import Ref
from redlang.ir.types import F16
from tests.algebra.views import B, c, g, k, signs, u, v, view, x, y, z

POSITIVE = {"z": "POSITIVE", "g": "POSITIVE"}


def separated(expr, **known):
    separation = Separation(view(**known), signs(**known))
    return separation.terms(expr), separation


def product(term):
    """Return a term as an expression."""
    parts = [*factors_of(term.element)]
    parts += [
        B.apply("pow", B.sub(shift.element, shift.context), shift.power) for shift in term.shifts
    ]
    if term.exponential is not None:
        e = term.exponential
        parts.append(B.apply(e.base, B.sub(e.element, e.context)))
    parts += [B.apply(turn.op, B.sub(turn.element, turn.context)) for turn in term.rotations]
    result = B.convert(float(term.number), x.type.dtype)
    for part in parts:
        result = B.mul(result, part)
    for factor in term.factors[: term.inside]:
        result = apply_factor(result, factor, B)
    for condition in term.chosen:
        result = B.where(condition, result, 0.0)
    if term.outer is not None:
        result = B.mul(result, term.outer)
    for factor in term.factors[term.inside :]:
        result = apply_factor(result, factor, B)
    for condition in term.selects:
        result = B.where(condition, result, 0.0)
    return result


leaves = st.sampled_from([x, y, g, u, v, z, c])


def operations(parts):
    two = st.tuples(st.sampled_from(["add", "sub", "mul"]), parts, parts)
    return st.one_of(
        two.map(lambda t: B.apply(*t)),
        parts.map(B.neg),
        parts.map(lambda e: B.apply("pow", e, 2)),
        parts.map(lambda e: B.div(e, z)),
        parts.map(lambda e: B.exp(B.mul(e, 0.125))),
        parts.map(lambda e: B.apply("cos", e)),
        parts.map(lambda e: B.where(k, e, y)),
        parts.map(lambda e: B.where(k, e, 0.0)),
        parts.map(lambda e: B.apply("abs", e)),
    )


expressions = st.recursive(leaves, operations, max_leaves=6)


def refs(exprs):
    """Return the names that expressions read."""
    found = outermost(exprs, lambda node: isinstance(node, Ref))
    return [node for node in found if isinstance(node, Ref)]


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_the_terms_add_up_to_the_expression(expr):
    try:
        terms, _ = separated(expr, **POSITIVE)
    except NotSeparable:
        return
    total = B.convert(0.0, x.type.dtype)
    for term in terms:
        total = B.add(total, product(term))
    sampler = Sampler(1)
    inputs = refs([expr, total])
    for _ in range(3):
        known = signs(**POSITIVE)
        values = {id(n): sampler.draw(n, known.of(n)) for n in inputs}
        by_name = {n.name: values[id(n)] for n in inputs}
        values = {id(n): by_name[n.name] for e in (expr, total) for n in refs([e])}
        try:
            left, right = (numbers.evaluate(e, values) for e in (expr, total))
        except UndefinedError:
            continue
        assert close(left, right)


def test_an_element_and_a_context_become_a_shift():
    (term,), _ = separated(B.sub(B.add(x, y), u))
    (shift,) = term.shifts
    assert shift.element == B.add(x, y)
    assert shift.context == u


def test_a_shift_takes_further_contexts_in():
    (term,), _ = separated(B.sub(B.sub(x, u), B.apply("log", z)))
    (shift,) = term.shifts
    assert shift.element == x
    assert shift.context == B.add(u, B.apply("log", z))


def test_two_shifts_stay_apart_as_they_were_written():
    terms, _ = separated(B.sub(B.sub(x, u), B.sub(y, v)))
    assert [term.number for term in terms] == [1, -1]


def test_factors_leave_in_the_order_written():
    (term,), _ = separated(B.mul(B.mul(B.div(B.exp(B.sub(x, u)), z), y), v))
    assert [(factor.op, factor.value) for factor in term.factors] == [("div", z), ("mul", v)]
    assert term.element == y


def test_equal_shifts_share_a_power():
    (term,), _ = separated(B.mul(B.apply("pow", B.sub(x, u), 2), B.sub(x, u)))
    (shift,) = term.shifts
    assert shift.power == 3


def test_the_logarithm_of_a_weight_is_a_shift():
    weight = B.div(B.exp(B.sub(x, u)), z)
    terms, _ = separated(B.apply("log", weight), z="POSITIVE")
    assert len(terms) == 1
    with pytest.raises(NotSeparable):
        separated(B.apply("log", weight))


def test_a_multiplied_out_product_of_sums_is_noted():
    sums = B.sub(B.sub(x, u), B.mul(v, B.sub(y, z)))
    _, separation = separated(B.mul(sums, sums))
    assert separation.spread
    _, separation = separated(B.mul(B.apply("pow", B.sub(x, u), 2), sums))
    assert not separation.spread


@pytest.mark.parametrize(
    "expr",
    [
        B.apply("abs", B.sub(x, u)),
        B.apply("sigmoid", B.sub(x, u)),
        B.apply("maximum", B.sub(x, u), 0.0),
        B.exp(B.mul(x, u)),
        B.exp(B.div(B.sub(x, u), v)),
        B.where(B.apply("gt", x, u), x, 0.0),
        B.div(x, B.sub(y, u)),
        B.cast(B.mul(x, u), F16),
        B.apply("sqrt", B.mul(x, u)),
        B.apply("pow", B.sub(x, u), MAX_POWER + 1),
        B.apply("floordiv", x, u),
        B.mul(B.exp(B.sub(x, u)), B.apply("exp2", B.sub(y, v))),
    ],
    ids=str,
)
def test_other_mixtures_are_declined(expr):
    with pytest.raises(NotSeparable) as caught:
        separated(expr)
    assert caught.value.reason


def test_a_square_root_of_positive_factors_comes_apart():
    (term,), _ = separated(B.apply("sqrt", B.div(g, z)), **POSITIVE)
    assert term.element == B.apply("sqrt", g)
    assert term.factors[0].value == B.apply("sqrt", z)


def test_a_ramp_is_scaled_by_what_is_not_negative():
    ramp = B.apply("maximum", B.div(x, z), 0.0)
    (term,), _ = separated(ramp, z="POSITIVE")
    assert term.element == B.apply("maximum", x, 0.0)
    with pytest.raises(NotSeparable):
        separated(ramp)


def test_exclusive_choices_do_not_multiply():
    chosen = B.where(k, B.sub(x, u), B.sub(y, v))
    terms, separation = separated(B.mul(chosen, chosen))
    assert len(terms) == 2
    assert not separation.spread
