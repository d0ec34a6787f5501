import pytest

from redlang.errors import ArgumentError
from redlang.ir.extents import bind_extents
from redlang.ir.printing import to_text
from redlang.ir.program import Load
from redlang.ir.walk import nodes
from tests.frontend.resolving import body, mistake, program

PAGED = """
def paged(q: "b d", k: "p page=16 d", table: "i32[b t]", lens: "i32[b]") -> "b":
    n = axis(16 * size(t))
    s = sum[d](q * k[table[b, n // 16], n % 16, d])
    return max[n](where(n < lens, s))
"""


def load(text, parameters='x: "n d", i: "i32[m]"'):
    """Return, as text, what a subscripted array is read as."""
    kernel = program(f'def f({parameters}, z: "m"):\n    return fill({text}, 0) + z')
    (found,) = (
        node
        for node in nodes(kernel.results[0].value)
        if isinstance(node, Load) and node.array == "x"
    )
    return to_text(found)


def test_a_paged_cache():
    assert to_text(program(PAGED)).splitlines()[5:8] == [
        "  axes b, d, p, page=16, t, n=16 * size(t)",
        "  s: f32[b n] = sum[d](q[b, d] * k[table[b, n // 16?]?, n % 16, d])",
        "  max.1: f32[b] = max[n](where(n < lens[b], s))",
    ]


def test_a_subscript_that_may_fall_outside_is_guarded():
    assert load("x[i, d]") == "x[i[m]?, d]"
    assert load("x[m, d]") == "x[m?, d]"


def test_result_axes_are_the_union_of_the_subscripts():
    (result,) = program('def f(x: "n d", i: "i32[b m]"):\n    return fill(x[i, b], 0)').results
    assert result.axes == ("b", "m")


def test_a_parameter_may_be_read_at_another_axis():
    lines = body("return sum[n](where(doc == doc[m], x))", 'x: "m n", doc: "i32[n]"')
    assert lines[0] == "sum.1: f32[m] = sum[n](where(doc[n] == doc[m?], x[m, n]))"


@pytest.mark.parametrize(
    ("subscripts", "read"),
    [
        ("3", "x[3]"),
        ("-1", "x[7]"),
        ("m % 8", "x[m % 8]"),
        ("m % 9", "x[m % 9?]"),
        ("clip(i, 0, 7)", "x[clip(i[m], 0, 7)]"),
        ("minimum(i, 7)", "x[minimum(i[m], 7)?]"),
        ("clip(i, i, 7)", "x[clip(i[m], i[m], 7)?]"),
        ("k", "x[k]"),
        ("k + 5", "x[k + 5?]"),
        ("k + 4", "x[k + 4]"),
        ("k * 2 + 1", "x[k * 2 + 1]"),
        ("7 - k", "x[7 - k]"),
        ("k // 2", "x[k // 2]"),
        ("k // 0", "x[k // 0?]"),
        ("size(k) - 1", "x[size(k) - 1]"),
        ("m % 8 + 0", "x[m % 8 + 0]"),
    ],
)
def test_a_subscript_of_a_literal_axis_is_guarded_unless_it_is_proved_inside(subscripts, read):
    parameters = 'x: "8", y: "k=4"'
    assert load(f"x[{subscripts}]", f'{parameters}, i: "i32[m]"') == read


def test_an_unsigned_subscript_is_an_int64():
    assert load("x[i, d]", 'x: "n d", i: "u64[m]"') == "x[int(i[m])?, d]"


def test_a_remainder_by_the_extent_itself_is_inside():
    assert load("x[m % size(n), d]") == "x[m % size(n), d]"


def test_an_axis_declared_with_the_same_extent_is_inside():
    lines = body("k = axis(size(n))\nreturn x[k]", 'x: "n"')
    assert lines == ["return f32[k] x[k]"]


def test_a_negative_literal_counts_from_the_end():
    assert load("x[-1, d]") == "x[size(n) - 1, d]"
    assert load("x[-2, d]") == "x[size(n) - 2, d]"


def test_a_literal_subscript_asks_for_elements_at_each_call():
    kernel = program('def f(x: "m n"):\n    return x[3, n] + x[-2, n] + x[0, -1] + x[m, 0]')
    assert [axis.least for axis in kernel.axes] == [4, 1]
    with pytest.raises(ArgumentError, match=r"axis m has 3 elements in x.*at least 4"):
        bind_extents(kernel, {"x": (3, 5)}, {})
    with pytest.raises(ArgumentError, match=r"axis n has 0 elements in x.*reads one"):
        bind_extents(kernel, {"x": (4, 0)}, {})
    assert bind_extents(kernel, {"x": (4, 1)}, {}) == {"m": 4, "n": 1}


def test_a_literal_subscript_of_a_literal_axis_is_checked_at_once():
    problem, hint = mistake("return x[8]", 'x: "8"')
    assert problem == "x has 8 elements along this dimension, and subscript 8 lies outside"
    assert hint == "subscripts run from -8 to 7"
    assert mistake("return x[-9]", 'x: "8"')[0].endswith("subscript -9 lies outside")


def test_a_literal_subscript_of_a_ragged_dimension():
    kernel = program('def f(x: "(t g=4)"):\n    return x[5]')
    assert to_text(kernel).splitlines()[2:] == [
        "  axes t=(size((t g)) + 3) // 4, g=4, (t g) >= 6",
        "  return f32[] x[5 // size(g), 5 % size(g)]",
    ]


def test_a_composite_dimension_has_one_subscript():
    parameters = 'x: "(g r) d", i: "i32[m]", y: "g"'
    assert load("x[i, d]", parameters) == "x[i[m] // size(r)?, i[m] % size(r), d]"
    assert load("x[-1, d]", parameters).startswith("x[(size(g) * size(r) - 1) // size(r)?")
    lines = body("return x[h, d]", 'x: "(g r) d", y: "g"')
    assert lines == ["return f32[d h] x[h // size(r), h % size(r), d]"]


def test_a_ragged_dimension_has_one_subscript():
    lines = body("return fill(x[h], 0)", 'x: "(t g=4)"')
    assert lines == ["return f32[h] x[h // size(g), h % size(g)]"]
    lines = body("return fill(x[i], 0)", 'x: "(t g=4)", i: "i32[m]"')
    place = "clip(i[m], 0, size((t g)) - 1)"
    assert lines == [
        "return f32[m] fill(where(i[m] < size((t g)), where(i[m] >= 0, "
        f"x[{place} // size(g), {place} % size(g)])), 0.0)"
    ]


def test_subscripts_are_integers():
    problem, hint = mistake("return x[m, x]")
    assert problem == "a subscript is an integer, and this is a float"
    assert hint == "round it and cast: i64(...)"
    assert mistake("return x[m, x > 0]")[0] == "a subscript is an integer, and this is a bool"


def test_one_subscript_for_each_dimension():
    problem, hint = mistake("return x[m]")
    assert problem == "x has 2 dimensions, and 1 subscript is given"
    assert hint == "one subscript for each of: m n"
    assert mistake("return x[m, n, 0]")[0] == "x has 2 dimensions, and 3 subscripts are given"
    assert mistake("return x[q, n, w]")[0] == "x has 2 dimensions, and 3 subscripts are given"


def test_only_array_parameters_take_subscripts():
    problem, hint = mistake("y = exp(x)\nreturn y[m, n]")
    assert problem == "y is no array parameter, and only those take subscripts"
    assert hint == "an element of a computed value is a reduction: sum[n](where(n == i, y))"


def test_mistakes_in_subscripts_are_reported_once():
    assert mistake("return x[m, foo + 1]")[0].startswith("foo is no parameter")
    assert mistake("return x[foo, n]" + " + bar(1)")[0].startswith("there is no function bar")
    assert mistake("y = exp(foo)\nreturn y[m + 1, n]")[0].startswith("foo is no parameter")
