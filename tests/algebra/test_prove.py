"""Proofs: right laws are proved, planted wrong ones are refuted, what is too much stays open."""

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra import budget, prove
from redlang.algebra.operators import Sign
from redlang.algebra.prove import Broken, Claim, Open, Proved, Prover
from redlang.algebra.sharing import Pool
from redlang.algebra.signs import Signs
from redlang.ir.build import Builder
from redlang.ir.program import Expr, Ref
from redlang.ir.types import BOOL, F32, Type

B = Builder(("n",))
x, y, c, d, u, v = (Ref(name, Type(F32)) for name in ("x", "y", "c", "d", "u", "v"))
k = Ref("k", Type(BOOL))


def decide(left, right, **signs):
    class Known(Signs):
        def __init__(self):
            super().__init__()
            self._names.update(signs)

    return Prover(Pool(), Known(), lambda _: False).prove(Claim(left, right))


def square(e):
    return B.mul(e, e)


RIGHT = {
    "exponential": (B.exp(B.sub(x, d)), B.mul(B.exp(B.sub(x, c)), B.exp(B.sub(c, d)))),
    "square": (
        square(B.sub(x, d)),
        B.add(
            B.add(square(B.sub(x, c)), B.mul(B.mul(2.0, B.sub(c, d)), B.sub(x, c))),
            square(B.sub(c, d)),
        ),
    ),
    "rotation": (
        B.apply("cos", B.add(x, u)),
        B.sub(
            B.mul(B.apply("cos", u), B.apply("cos", x)),
            B.mul(B.apply("sin", u), B.apply("sin", x)),
        ),
    ),
    "base two": (
        B.apply("exp2", B.sub(x, d)),
        B.mul(B.apply("exp2", B.sub(x, c)), B.apply("exp2", B.sub(c, d))),
    ),
    "quotient": (B.div(B.mul(x, u), v), B.mul(B.div(u, v), x)),
    "choice": (
        B.mul(B.where(k, x, y), u),
        B.where(k, B.mul(x, u), B.mul(y, u)),
    ),
    "choice inside an exponential": (
        B.exp(B.where(k, x, y)),
        B.where(k, B.exp(x), B.exp(y)),
    ),
    "power": (B.apply("pow", B.mul(x, u), 3), B.mul(B.apply("pow", x, 3), B.apply("pow", u, 3))),
}

WRONG = {
    "sign of the exponent": (B.exp(B.sub(x, d)), B.mul(B.exp(B.sub(x, c)), B.exp(B.sub(d, c)))),
    "forgotten cross term": (
        square(B.sub(x, d)),
        B.add(square(B.sub(x, c)), square(B.sub(c, d))),
    ),
    "once in place of twice": (
        square(B.sub(x, d)),
        B.add(
            B.add(square(B.sub(x, c)), B.mul(B.sub(c, d), B.sub(x, c))),
            square(B.sub(c, d)),
        ),
    ),
    "wrong rotation": (
        B.apply("cos", B.add(x, u)),
        B.add(
            B.mul(B.apply("cos", u), B.apply("cos", x)),
            B.mul(B.apply("sin", u), B.apply("sin", x)),
        ),
    ),
    "wrong base": (
        B.apply("exp2", B.sub(x, d)),
        B.mul(B.apply("exp2", B.sub(x, c)), B.exp(B.sub(c, d))),
    ),
    "magnitude of a difference": (
        B.apply("abs", B.sub(x, u)),
        B.sub(B.apply("abs", x), B.apply("abs", u)),
    ),
    "branches swapped": (B.mul(B.where(k, x, y), u), B.where(k, B.mul(y, u), B.mul(x, u))),
    "almost right": (B.mul(x, u), B.mul(B.mul(x, u), 1.0000001)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_proves_the_laws_of_transport(name):
    assert isinstance(decide(*RIGHT[name]), Proved)


@pytest.mark.parametrize("name", WRONG)
def test_refutes_planted_wrong_rewrites_with_values(name):
    outcome = decide(*WRONG[name])
    assert isinstance(outcome, Broken)
    assert "against" in outcome.witness


def test_signs_decide_what_is_true_of_positive_numbers_only():
    claim = (B.apply("sqrt", B.mul(x, u)), B.mul(B.apply("sqrt", x), B.apply("sqrt", u)))
    positive = {"x": Sign.POSITIVE, "u": Sign.POSITIVE}
    assert isinstance(decide(*claim, **positive), Proved)
    logarithm = (B.apply("log", B.mul(x, u)), B.add(B.apply("log", x), B.apply("log", u)))
    assert isinstance(decide(*logarithm, **positive), Proved)


def test_what_is_equal_nowhere_defined_is_not_proved():
    never = B.apply("log", B.neg(B.exp(x)))
    assert not isinstance(decide(never, B.mul(never, 1.0)), Proved)


def test_too_large_a_claim_stays_open(monkeypatch):
    monkeypatch.setattr(budget, "NODES", 5)
    assert isinstance(decide(*RIGHT["square"]), Open)


def test_too_many_conditions_stay_open():
    total: Expr = x
    for i in range(prove.MAX_CONDITIONS + 1):
        total = B.add(total, B.where(Ref(f"k{i}", Type(BOOL)), u, v))
    outcome = decide(B.mul(total, y), B.mul(y, B.add(total, 0.0)))
    assert not isinstance(outcome, Broken)


@st.composite
def shifts(draw):
    """A polynomial in x - u and its expansion about c, with a chance of one wrong coefficient."""
    power = draw(st.integers(1, 4))
    wrong = draw(st.sampled_from([None, *range(power + 1)]))
    return power, wrong


@settings(max_examples=15, deadline=None)
@given(shifts())
def test_binomial_shifts_are_proved_exactly_when_they_are_right(case):
    power, wrong = case
    left = B.apply("pow", B.sub(x, u), power)
    right = None
    for i in range(power + 1):
        factor = comb(power, i) + (1 if i == wrong else 0)
        term = B.mul(
            float(factor),
            B.mul(
                B.apply("pow", B.sub(x, c), i),
                B.apply("pow", B.sub(c, u), power - i),
            ),
        )
        right = term if right is None else B.add(right, term)
    assert isinstance(decide(left, right), Proved if wrong is None else Broken)
