"""The tables of laws: complete, and true on numbers."""

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra import numbers
from redlang.algebra.operators import (
    FOLDED_SIGNS,
    IDENTITIES,
    LAWS,
    OUTER,
    SPLITTABLE,
    SWAPPED,
    Sign,
    flipped,
)
from redlang.ir.operators import OPERATORS, REDUCTIONS
from redlang.ir.program import Apply, Ref
from redlang.ir.types import F32, Type

REAL = sorted(
    name
    for name, operator in OPERATORS.items()
    if operator.rule in ("arithmetic", "real") and name not in ("ldexp", "floordiv", "mod")
)
values = st.integers(-24, 24).map(lambda eighths: mpmath.mpf(eighths) / 8)


def apply(op, *arguments):
    refs = [Ref(f"a{i}", Type(F32)) for i in range(len(arguments))]
    table = {id(ref): value for ref, value in zip(refs, arguments, strict=True)}
    return numbers.evaluate(Apply(op, tuple(refs), Type(F32)), table)


def sign_of(value):
    return Sign.POSITIVE if value > 0 else Sign.NEGATIVE if value < 0 else Sign.ZERO


def test_every_operator_has_its_laws():
    assert LAWS.keys() == OPERATORS.keys()


def test_every_reduction_has_an_identity_or_ranks():
    assert set(REDUCTIONS) == set(IDENTITIES) | {"argmax", "argmin", "topk"}
    assert set(IDENTITIES) == SPLITTABLE
    assert set(OUTER) <= SPLITTABLE
    assert set(FOLDED_SIGNS) == set(IDENTITIES) | {"topk"}
    assert all(SWAPPED[SWAPPED[op]] == op for op in SWAPPED)


@settings(max_examples=200, deadline=None)
@given(op=st.sampled_from(REAL), arguments=st.tuples(values, values, values))
def test_signs_hold_on_numbers(op, arguments):
    arguments = arguments[: OPERATORS[op].arity]
    if op == "clip" and arguments[1] > arguments[2]:
        return
    try:
        result = apply(op, *arguments)
    except numbers.UndefinedError:
        return
    assert sign_of(result) in LAWS[op].sign(*map(sign_of, arguments))


@settings(max_examples=200, deadline=None)
@given(
    op=st.sampled_from([op for op in REAL if LAWS[op].order]),
    pair=st.tuples(values, values).filter(lambda pair: pair[0] < pair[1]),
    rest=st.tuples(values, values).map(sorted),
)
def test_order_holds_on_numbers(op, pair, rest):
    more = rest[: OPERATORS[op].arity - 1]
    law = LAWS[op]
    if any(sign_of(value) not in law.domain for value in pair):
        return
    low, high = (apply(op, value, *more) for value in pair)
    if law.order == "falling":
        low, high = high, low
    assert low < high if law.strict else low <= high


@settings(max_examples=100, deadline=None)
@given(op=st.sampled_from([op for op in REAL if LAWS[op].product]), a=values, b=values)
def test_products_hold_on_numbers(op, a, b):
    law = LAWS[op]
    if sign_of(a) not in law.domain or sign_of(b) not in law.domain:
        return
    assert mpmath.almosteq(apply(op, a * b), apply(op, a) * apply(op, b), 1e-12, 1e-12)


@settings(max_examples=60, deadline=None)
@given(op=st.sampled_from([op for op in REAL if LAWS[op].domain is not Sign(7)]), a=values)
def test_functions_are_numbers_exactly_in_their_domain(op, a):
    inside = sign_of(a) in LAWS[op].domain
    if inside:
        apply(op, a)
    else:
        with pytest.raises(numbers.UndefinedError):
            apply(op, a)


def test_flipping_twice_changes_nothing():
    for bits in range(8):
        assert flipped(flipped(Sign(bits))) == Sign(bits)
