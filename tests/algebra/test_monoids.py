"""User's monoids: right laws are proved, broken ones named with the states that break them."""

import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from redlang.algebra.monoids import laws
from redlang.algebra.verdicts import Fused
from redlang.errors import FusionError
from redlang.ir.build import Builder
from redlang.ir.program import Definition, Monoid, Program, Ref, Result
from redlang.ir.types import F32, Type
from tests.algebra.programs import fused, kernel, program_of

B = Builder(("n",))
F = Type(F32)
a, b, x = ([Ref(f"{side}.{i}", F) for i in range(3)] for side in "abx")
INF = float("inf")


def number(value):
    return B.convert(value, F32)


def monoid(init, lift, combine, finish=None):
    return Monoid("mine", init, lift, combine, finish or (a[0],))


top = B.apply("maximum", a[0], b[0])
LOGSUMEXP = monoid(
    (number(-INF), number(0.0)),
    (x[0], number(1.0)),
    (
        top,
        B.add(
            B.mul(a[1], B.exp(B.sub(a[0], top))),
            B.mul(b[1], B.exp(B.sub(b[0], top))),
        ),
    ),
    (B.add(a[0], B.apply("log", a[1])),),
)
AFFINE = monoid(
    (number(1.0), number(0.0)),
    (x[0], x[1]),
    (B.mul(a[0], b[0]), B.add(B.mul(b[0], a[1]), b[1])),
    (a[1],),
)
ADDITION = monoid((number(0.0),), (x[0],), (B.add(a[0], b[0]),))
DIFFERENCE = monoid((number(0.0),), (x[0],), (B.sub(a[0], b[0]),))
AVERAGE = monoid((number(0.0),), (x[0],), (B.mul(0.5, B.add(a[0], b[0])),))
WRONG_INIT = monoid((number(1.0),), (x[0],), (B.add(a[0], b[0]),))


@pytest.mark.parametrize("right", [ADDITION, AFFINE], ids=["addition", "affine maps"])
def test_proves_what_holds_for_all_states(right):
    known = laws(right)
    assert known.proved
    assert known.broken is None


def test_believes_numbers_where_an_identity_is_infinite():
    assert laws(LOGSUMEXP).broken is None


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (DIFFERENCE, "combine(combine(a, b), c) = combine(a, combine(b, c))"),
        (AVERAGE, "combine(combine(a, b), c) = combine(a, combine(b, c))"),
        (WRONG_INIT, "combine(init, a) = a"),
    ],
    ids=["difference", "average", "init"],
)
def test_names_the_law_that_breaks(wrong, law):
    known = laws(wrong)
    assert known.broken is not None
    assert known.broken[0] == law
    assert "against" in known.broken[1]


def with_monoid(chosen, operands):
    """Return a program that reduces the first arrays of a kernel by a monoid."""
    program = program_of(kernel('x: "m n", y: "m n"', "return sum[n](x * y)"))
    (definition,) = program.definitions
    load_x, load_y = definition.value.operand.arguments
    reduce = Builder.of(program).reduce(
        "monoid", ("n",), *(load_x, load_y)[:operands], monoid=chosen
    )
    ref = Ref("r", reduce.types[0])
    (result,) = program.results
    return Program(
        "k",
        program.params,
        program.axes,
        (Definition(("r",), reduce),),
        (Result(ref, result.dims, result.dtype),),
    )


@pytest.mark.parametrize(("tile", "segments"), [(1, 1), (4, 3), (50, 1)])
def test_a_monoid_that_does_not_commute_keeps_the_order(tile, segments):
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((3, 17)).astype(np.float32) for name in "xy"}
    fusion = fuse(with_monoid(AFFINE, 2))
    assert isinstance(fusion.verdicts[0], Fused)
    (actual,) = fused(fusion, arrays, tile=tile, segments=segments)
    expected = np.zeros(3)
    for gate, term in zip(arrays["x"].T, arrays["y"].T, strict=True):
        expected = gate * expected + term
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_a_log_sum_exp_over_masked_rows():
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((3, 17)).astype(np.float32) for name in "xy"}
    (actual,) = fused(fuse(with_monoid(LOGSUMEXP, 1)), arrays, tile=4, segments=2)
    np.testing.assert_allclose(actual, np.log(np.exp(arrays["x"].astype(float)).sum(1)), rtol=1e-9)


def test_a_broken_monoid_is_refused():
    with pytest.raises(FusionError, match="monoid 'mine' breaks"):
        fuse(with_monoid(DIFFERENCE, 1))
