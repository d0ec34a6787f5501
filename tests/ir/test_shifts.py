import pytest

from redlang.ir.normalise import normalise
from redlang.ir.program import Apply, Index, Load
from redlang.ir.shifts import end_test, held_back, running, shift, united
from redlang.ir.walk import expressions, nodes
from tests.frontend.resolving import program

TEXT = """
def f(x: "m n", at: "i64[m]", k: int) -> "m":
    return sum[n](PLACE * x)
"""


def read(place):
    """Return the subscript of the first read of `x` along `n`, and the condition of the sum."""
    found = normalise(program(TEXT.replace("PLACE", place)))
    (reduce, *_) = [d.value for d in found.definitions if hasattr(d.value, "condition")]
    loads = [n for e in expressions(reduce) for n in nodes(e) if isinstance(n, Load)]
    places = [load.subscripts[1] for load in loads if load.array == "x"]
    return next((p for p in places if not isinstance(p, Index)), places[0]), reduce.condition


@pytest.mark.parametrize(
    ("place", "distance"),
    [
        ("x[m, n]", 0),
        ("x[m, n + 1]", 1),
        ("x[m, 3 + n]", 3),
        ("x[m, n - 2]", -2),
        ("x[m, 2 * n]", None),
        ("x[m, n + k]", None),
        ("x[m, at]", None),
        ("x[m, n + 1048576]", None),
    ],
)
def test_what_is_a_constant_distance_away_is_a_shift(place, distance):
    subscript, _ = read(place)
    assert shift(subscript, "n") == distance
    assert shift(subscript, "m") is None


def test_what_is_held_back_by_the_ends_of_an_axis():
    ahead, condition = read("x[m, n + 1]")
    assert held_back(ahead, "n")[1] is False
    assert end_test(condition) == ("n", 1, True)
    anywhere, _ = read("x[m, at]")
    assert held_back(anywhere, "n")[1] is True
    assert held_back(anywhere, "m") is None


@pytest.mark.parametrize(
    ("place", "axes"),
    [
        ("x[m, n + 1]", "n"),
        ("x[m, n - at]", "n"),
        ("x[m, at - n]", ""),
        ("x[m, 2 * n + 1]", ""),
        ("x[m, at]", ""),
        ("x[m, n + m]", "mn"),
    ],
)
def test_axes_along_which_places_go_on_by_one(place, axes):
    subscript, _ = read(place)
    assert running(subscript) == frozenset(axes)


def test_both_ends_are_one_question_where_a_place_may_be_anywhere():
    _, condition = read("x[m, at]")
    assert condition.op == "and"
    single = united(condition)
    assert isinstance(single, Apply)
    assert (single.op, [a.type.dtype.name for a in single.arguments]) == ("lt", ["u64", "u64"])
    _, two = read("x[m, at] * x[at, n]")
    both = united(two)
    assert isinstance(both, Apply)
    assert single in both.arguments
    assert all(isinstance(part, Apply) and part.op == "lt" for part in both.arguments)
    _, behind = read("x[m, n - 2]")
    assert united(behind) == behind
