"""Transport: what a term needs, which reference points it gets, and that its claims are proved."""

import pytest

from redlang.algebra.claims import bases, claims_of, points_of, prover_for
from redlang.algebra.derive import Declined, Plain, Stage, Transported, derive
from redlang.algebra.prove import Broken, Claim, Proved
from redlang.algebra.reading import Reading
from redlang.algebra.separate import Separation
from redlang.algebra.sharing import Pool
from redlang.algebra.terms import View
from redlang.algebra.transport import Centre, Maximum, axes_of, carry, value
from redlang.ir.build import Builder
from redlang.ir.program import Ref
from redlang.ir.types import F32, I64, Type
from tests.algebra.views import B, c, g, k, signs, u, v, view, x, y, z


def carried(expr, **known):
    look = view(**known)
    (term,) = Separation(look, signs(**known)).terms(expr)
    return carry(term, None, F32, look, signs(**known))


def plan_of(expr, condition=None, op="sum", **known):
    look = view(**known)
    reduce = B.reduce(op, ("n",), expr, condition=condition)
    interned = tuple(map(look.pool.intern, reduce.operands))
    condition = condition and look.pool.intern(condition)
    stage = Stage(("r",), reduce, interned, condition)
    return derive(stage, look, signs(**known), {}), look


def square(e):
    return B.apply("pow", e, 2)


RANKS = {
    "exponential": (B.exp(B.sub(x, u)), 1),
    "scaled exponential": (B.div(B.mul(B.exp(B.sub(x, u)), y), z), 1),
    "shift": (B.mul(B.sub(x, u), B.mul(y, y)), 2),
    "square": (square(B.sub(x, u)), 3),
    "covariance": (B.mul(B.sub(x, u), B.sub(y, v)), 4),
    "entropy": (B.mul(B.exp(B.sub(x, u)), B.sub(x, u)), 2),
    "weighted square": (B.mul(B.exp(B.sub(x, u)), square(B.sub(y, v))), 3),
    "rotation": (B.apply("cos", B.add(x, u)), 2),
    "factor": (B.mul(x, u), 1),
    "fourth power": (B.apply("pow", B.sub(x, u), 4), 5),
    "two contexts for one element": (B.mul(B.sub(x, u), B.sub(x, v)), 3),
}


@pytest.mark.parametrize("name", RANKS)
def test_the_rank_is_that_of_the_space(name):
    expr, rank = RANKS[name]
    assert len(list(carried(expr).basis())) == rank


@pytest.mark.parametrize("name", RANKS)
def test_what_a_plan_claims_is_proved(name):
    plan, look = plan_of(RANKS[name][0], z="POSITIVE")
    claims = claims_of(plan, B)
    prover = prover_for(plan, look, signs(z="POSITIVE"))
    assert claims
    assert all(isinstance(prover.prove(claim), Proved) for claim in claims)


@pytest.mark.parametrize("name", ["square", "exponential", "rotation", "covariance"])
def test_a_planted_wrong_transport_is_refuted(name):
    plan, look = plan_of(RANKS[name][0])
    prover = prover_for(plan, look, signs())
    for claim in claims_of(plan, B):
        wrong = Claim(claim.left, B.mul(claim.right, 2.0))
        assert isinstance(prover.prove(wrong), Broken)
        wrong = Claim(claim.left, B.add(claim.right, 0.001))
        assert isinstance(prover.prove(wrong), Broken)


def test_an_exponential_stands_at_the_running_maximum_of_its_exponent():
    top = carried(B.exp(B.sub(x, u))).top
    assert isinstance(top.maximum, Maximum)
    assert top.maximum.element == x


def test_a_shift_stands_at_the_mean_under_the_size_of_its_weight():
    weighted = carried(B.mul(B.apply("abs", g), square(B.sub(x, u))))
    (centre,) = weighted.centres
    assert isinstance(centre, Centre)
    assert centre.weight is not None
    assert centre.weight.element == B.apply("abs", g)
    weighted = carried(B.mul(g, B.sub(x, u)))
    assert weighted.centres[0].weight is not None
    assert weighted.centres[0].weight.element == B.apply("abs", g)


def test_integers_stand_at_the_origin():
    whole = B.index("n")
    expr = square(B.sub(whole, B.convert(u, I64)))
    look = view()
    (term,) = Separation(look, signs()).terms(expr)
    (centre,) = carry(term, None, I64, look, signs()).centres
    assert centre.weight is None


def test_a_phi_varies_with_no_more_than_its_parts():
    term = carried(B.mul(B.sub(x, u), k if k.type.axes == ("m",) else B.convert(k, F32)))
    lowest = list(term.basis())[-1]
    assert axes_of(lowest, B) == ("n",)


def test_conditions_on_contexts_leave_the_sum():
    plan, _ = plan_of(B.sub(x, u), condition=B.apply("gt", u, 0.0))
    assert isinstance(plan, Transported)
    assert plan.guards


def test_conditions_that_compare_elements_with_contexts_are_declined():
    with pytest.raises(Declined) as caught:
        plan_of(x, condition=B.apply("gt", x, u))
    assert caught.value.gate == "closure"


def test_ranks_beyond_the_cap_are_declined():
    with pytest.raises(Declined) as caught:
        plan_of(B.mul(square(B.sub(x, u)), square(B.sub(y, v))))
    assert caught.value.gate == "size"


def test_what_reads_nothing_carried_is_plain():
    plan, _ = plan_of(B.mul(x, y))
    assert isinstance(plan, Plain)
    assert claims_of(plan, B) == []


def test_points_have_different_names():
    plan, _ = plan_of(B.mul(B.exp(B.sub(x, u)), B.mul(B.sub(y, v), B.sub(g, z))))
    assert isinstance(plan, Transported)
    names = points_of(plan).names.values()
    assert sorted(names) == ["c", "c2", "c3"]
    assert len(bases(plan)) == 4


def test_a_shift_from_the_maximum_of_its_exponent_stands_there():
    entropy = B.mul(B.exp(B.sub(x, u)), B.sub(x, u))
    look = view()
    (term,) = Separation(look, signs()).terms(entropy)
    at = carry(term, None, F32, look, signs(), is_maximum=lambda shift: shift.context == u)
    (centre,) = at.centres
    assert centre.top is at.top.maximum
    assert centre.weight is None
    assert centre.moves


def test_elements_are_multiplied_in_the_order_of_the_text():
    weight = B.exp(B.sub(x, u))
    apart = carried(B.mul(B.mul(weight, y), g)).top
    together = carried(B.mul(weight, B.mul(y, g))).top
    assert apart == together
    exponential = B.exp(B.sub(x, c))
    assert value(apart, lambda _: c, B) == B.mul(B.mul(exponential, y), g)
    assert value(together, lambda _: c, B) == B.mul(exponential, B.mul(y, g))


def test_what_is_one_side_of_a_product_stays_together():
    build = Builder(("m", "n", "e"))
    p = Ref("p", Type(F32, ("m", "n")))
    w, h = (Ref(name, Type(F32, ("n", "e"))) for name in ("w", "h"))
    look = View(("n",), ("u",), build, Pool(), Reading(signs()))
    text = build.mul(build.mul(build.exp(build.sub(p, u)), w), h)
    (term,) = Separation(look, signs()).terms(text)
    top = carry(term, None, F32, look, signs()).top
    assert value(top, lambda _: c, build) == build.mul(build.exp(build.sub(p, c)), build.mul(w, h))


def test_what_has_the_axes_of_the_weight_stays_on_its_side():
    build = Builder(("m", "n", "e"))
    p, g = (Ref(name, Type(F32, axes)) for name, axes in (("p", ("m", "n")), ("g", ("n",))))
    v = Ref("v", Type(F32, ("n", "e")))
    look = View(("n",), ("u",), build, Pool(), Reading(signs()))
    text = build.mul(build.mul(build.exp(build.sub(p, u)), g), v)
    (term,) = Separation(look, signs()).terms(text)
    top = carry(term, None, F32, look, signs()).top
    weight = build.mul(build.exp(build.sub(p, c)), g)
    assert value(top, lambda _: c, build) == build.mul(weight, v)


def test_a_power_of_an_exponential_shares_its_reference_point():
    p = B.exp(B.sub(x, u))
    found = carried(B.mul(B.mul(p, p), y))
    alone = carried(p)
    assert found.top.times == 2
    assert found.top.maximum == alone.top.maximum
    assert alone.top.times == 1


def test_a_power_of_another_context_has_a_point_of_its_own():
    found = carried(B.mul(B.exp(B.sub(x, u)), B.exp(B.sub(x, v))))
    assert found.top.times == 1
    assert found.top.maximum is not None
    assert found.top.maximum.element == B.add(x, x)


def test_exponents_are_summed_about_their_maximum():
    p = B.exp(B.sub(x, u))
    (centre,) = carried(B.mul(p, B.sub(x, v))).centres
    assert centre.top is not None
    assert centre.top.element == x
    (centre,) = carried(B.mul(p, square(B.sub(x, v)))).centres
    assert centre.top is None
