import numpy as np
import pytest

from redlang.codegen.visible import is_of_indices, stretch
from redlang.ir.build import Builder
from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.types import F32, I64

B = Builder(("m", "n"))
M, N = B.index("m"), B.index("n")
W = B.size("m")
LABEL = B.load("label", I64, [M])
SCOPE = Scope(
    "declared",
    ("m", "n"),
    {"m": 6, "n": 11},
    {"label": np.array([3, 0, 20, -4, 10, 5])},
    {"label": ("m",)},
)
CONDITIONS = [
    B.apply("le", N, M),
    B.apply("lt", M, N),
    B.apply("ge", B.add(N, 2), B.mul(M, 2)),
    B.apply("gt", B.sub(M, N), -3),
    B.apply("le", B.neg(N), B.sub(M, W)),
    B.apply("eq", N, LABEL),
    B.apply("and", B.apply("le", N, M), B.apply("gt", B.add(N, 3), M)),
    B.apply("lt", B.sub(B.add(M, B.neg(N)), 1), LABEL),
]


def at(expr, m):
    return int(evaluate(expr, SCOPE.with_windows({"m": (m, m + 1)})).data.ravel()[0])


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_stretch_holds_exactly_the_elements_that_the_condition_shows(condition):
    found = stretch(condition, "n", {"m"})
    assert found is not None
    assert found.rest is None
    shown = np.broadcast_to(evaluate(condition, SCOPE).data, (6, 11))
    for m in range(6):
        first = max([0, *(at(bound, m) for bound in found.first)])
        stop = min([11, *(at(bound, m) for bound in found.stop)])
        np.testing.assert_array_equal(shown[m], [first <= n < stop for n in range(11)])


def test_what_is_no_bound_of_the_axis_remains_a_condition():
    odd = B.apply("eq", B.apply("mod", N, 2), 1)
    found = stretch(B.apply("and", B.apply("le", N, M), odd), "n", {"m"})
    assert found is not None
    assert found.rest == odd
    assert len(found.stop) == 1


@pytest.mark.parametrize(
    "condition",
    [
        B.apply("or", B.apply("le", N, M), B.apply("eq", N, 5)),
        B.apply("ne", N, M),
        B.apply("le", B.mul(N, N), M),
        B.apply("gt", B.load("x", F32, [N]), 0),
        B.apply("lt", M, 3),
    ],
)
def test_other_conditions_confine_nothing(condition):
    assert stretch(condition, "n", {"m"}) is None


def test_bounds_are_known_outside_of_the_loop():
    assert stretch(B.apply("le", N, M), "n", set()) is None
    assert stretch(B.apply("le", N, M), "m", {"n"}) is not None


def test_expressions_of_indices_are_cheap():
    assert is_of_indices(B.apply("le", N, B.add(M, W)))
    assert not is_of_indices(B.apply("eq", N, LABEL))
