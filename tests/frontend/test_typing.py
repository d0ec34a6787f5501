import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redlang
from redlang.frontend.typing import promote, storage_promotion
from redlang.ir.interpret import interpret
from redlang.ir.printing import to_text
from redlang.ir.program import Apply, Cast, Literal, Scalar
from redlang.ir.types import BF16, BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, F64, I64, U64, Type
from redlang.ir.walk import nodes
from tests.frontend.resolving import body, mistake, mistakes, program, value

COMPUTE = st.sampled_from([BOOL, I64, U64, F32, F64])
TYPES = st.builds(Type, COMPUTE, weak=st.booleans())
FLOATS = [F8E4M3, F8E5M2, F16, BF16, F32, F64]


def result(expression, parameters='x: "n"', **options):
    """Return the result of a kernel that returns this expression."""
    (result,) = program(f"def f({parameters}):\n    return {expression}", **options).results
    return result


def computed(expression, parameters='x: "n"', **options):
    """Return the type in which an expression is computed."""
    return result(expression, parameters, **options).value.type.dtype.name


def stored(expression, parameters='x: "n"', **options):
    """Return the type in which a result without an element type is stored."""
    return result(expression, parameters, **options).dtype.name


# Storage and compute types (decision 10)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f32"])
def test_small_floats_become_f32_on_load(dtype):
    kernel = program(f'def f(x: "{dtype}[n]"):\n    return sum[n](x * x)')
    assert kernel.definitions[0].value.types == (Type(F32),)
    assert not any(isinstance(node, Cast) for node in nodes(kernel.definitions[0].value.operand))


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32"])
def test_integers_become_i64_on_load(dtype):
    assert computed("x + 1", f'x: "{dtype}[n]"') == "i64"


def test_u64_is_ordered_and_adds_up_as_it_is():
    kept = ["maximum(x, 2)", "clip(x, 0, 7)", "where(x > 1, x, 3)", "abs(x)", "x & 1"]
    assert {computed(expression, 'x: "u64[n]"') for expression in kept} == {"u64"}
    reductions = ["sum[n](x)", "prod[n](x)", "max[n](x)", "min[n](x)"]
    assert {stored(expression, 'x: "u64[n]"') for expression in reductions} == {"u64"}


COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
COMPARISONS |= {"==": operator.eq, "!=": operator.ne}


@pytest.mark.parametrize("sign", COMPARISONS)
def test_u64_and_signed_integers_are_compared_by_their_values(sign):
    least, rest, most = 2**63, [5, 2**64 - 1, 2**64 - 5], [-5, -1, 5]
    unsigned = np.array([0, least - 1, least, *rest], np.uint64)
    signed = np.array([-least, 0, least - 1, *most])
    text = f'def f(x: "u64[n]", y: "i64[m]", k: int):\n    return x {sign} y, y {sign} x'
    kernel = program(text + f", x {sign} k, x {sign} -5, 5 {sign} x, y {sign} {2**64 - 5}")
    found = interpret(kernel, {"x": unsigned, "y": signed, "k": -5})
    x, y, holds = unsigned.tolist(), signed.tolist(), COMPARISONS[sign]
    assert found[0].tolist() == [[holds(a, b) for b in y] for a in x]
    assert found[1].tolist() == [[holds(b, a) for b in y] for a in x]
    assert found[2].tolist() == found[3].tolist() == [holds(a, -5) for a in x]
    assert found[4].tolist() == [holds(5, a) for a in x]
    assert found[5].tolist() == [holds(b, 2**64 - 5) for b in y]


def test_u64_and_signed_integers_are_chosen_by_their_values():
    unsigned = np.array([0, 5, 1 << 63, (1 << 64) - 1, 9], np.uint64)
    signed = np.array([-5, 7, (1 << 63) - 1, -(1 << 63), 9])
    text = (
        'def f(x: "u64[n]", y: "i64[n]"):\n'
        "    return minimum(x, y), maximum(y, x), max[n](minimum(y, x)), min[n](maximum(x, y))"
    )
    both = list(zip(map(int, unsigned), map(int, signed), strict=True))
    least, most = [min(pair) for pair in both], [max(pair) for pair in both]
    kernel = redlang.compile(text)
    for found in (kernel(unsigned, signed), kernel.reference(unsigned, signed)):
        assert [part.tolist() for part in found] == [least, most, max(least), min(most)]
        assert [part.dtype.name for part in found] == ["int64", "uint64", "int64", "uint64"]


@pytest.mark.parametrize("expression", ["x + 1", "x - x", "2 * x", "x // 3", "x % 3", "-x", "x**2"])
def test_arithmetic_of_u64_is_that_of_all_integers(expression):
    assert computed(expression, 'x: "u64[n]"') == "i64"
    assert stored(f"sum[n]({expression})", 'x: "u64[n]"') == "i64"


def test_only_a_cast_that_the_user_wrote_rounds():
    expr = result("f16(x) * x").value
    casts = [node for node in nodes(expr) if isinstance(node, Cast)]
    assert [(cast.to.name, cast.explicit, cast.type.dtype.name) for cast in casts] == [
        ("f16", True, "f32")
    ]


@pytest.mark.parametrize("weak", ["2", "0.5", "s", "k", "n", "size(n)", "c", "size(n) / 2", "C"])
def test_weak_values_never_widen(weak):
    parameters = 'x: "f16[n]", s: float, k: int, c: bool'
    assert computed(f"x * {weak}", parameters, names={"C": 2.5}) == "f32"


@pytest.mark.parametrize("weak", ["2", "0.1", "s", "n / 3", "sqrt(size(n))", "C"])
def test_weak_values_take_f64_on(weak):
    expr = result(f"x * ({weak})", 'x: "f64[n]", s: float', names={"C": 2.5}).value
    assert expr.type.dtype is F64
    assert not any(
        isinstance(node, Cast) and node.operand.type.dtype is F32 for node in nodes(expr)
    )


def test_a_weak_local_takes_f64_on():
    lines = body("scale = 1 / sqrt(size(n))\nreturn x * scale", 'x: "f64[n]"')
    assert lines == [
        "scale: f64[] = 1.0 / sqrt(float(size(n)))",
        "return f64[n] x[n] * scale",
    ]


def test_beside_an_f64_array_weak_values_still_yield_to_f32():
    kernel = program(
        'def f(x: "f64[n]", y: "f32[n]", s: float):\n    return x * s, y * s, y * (s / 3)'
    )
    wide, narrow, deep = (result.value for result in kernel.results)
    assert wide.type.dtype is F64
    assert narrow.type.dtype is deep.type.dtype is F32
    floats = [node.type.dtype for node in nodes(deep) if node.type.dtype.kind == "float"]
    assert set(floats) == {F32}


def test_any_f64_array_makes_f64():
    assert computed("x + y", 'x: "f32[n]", y: "f64[n]"') == "f64"
    assert value("x + y", 'x: "f32[n]", y: "f64[n]"') == "f64[n] float(x[n]) + y[n]"


def test_integers_never_widen_a_float():
    assert computed("x * i", 'x: "f16[n]", i: "i64[n]"') == "f32"
    assert computed("x * mean[n](i)", 'x: "f16[n]", i: "i64[n]"') == "f32"
    assert computed("x * (i / 3)", 'x: "f16[n]", i: "i64[n]"') == "f32"


@pytest.mark.parametrize(
    "expression", ["i / 2", "exp(i)", "sqrt(i)", "i ** -1", "i ** i", "i * 0.5"]
)
def test_division_and_transcendentals_of_integers_are_f32(expression):
    assert computed(expression, 'i: "i32[n]"') == "f32"
    assert stored(expression, 'i: "i32[n]"') == "f32"


@pytest.mark.parametrize(
    "expression", ["i ** 2", "i // 2", "i % 3", "-i", "abs(i)", "clip(i, 0, 3)"]
)
def test_arithmetic_of_integers_is_i64(expression):
    assert computed(expression, 'i: "i32[n]"') == "i64"


def test_the_mean_of_integers_is_an_int64_sum_divided_in_f64():
    assert body("return mean[n](i)", 'i: "i32[n]"') == [
        "sum.1: i64[] = sum[n](i[n])",
        "mean.1: f64[] = float(sum.1) / float(size(n))",
        "return f64[] mean.1",
    ]


def test_bools_count_as_integers_in_arithmetic():
    assert computed("(x > 0) + (x > 1)") == "i64"
    assert computed("sum[n](x > 0)") == "i64"
    assert computed("(x > 0) * x") == "f32"
    assert body("return max[n](x > 0)", 'x: "n"')[0] == "any.1: bool[] = any[n](x[n] > 0.0)"


def test_bools_stay_bools_where_they_can():
    parameters = 'c: "bool[n]", d: "bool[n]", i: "i32[n]"'
    assert computed("c == d", parameters) == "bool"
    assert value("c < d", parameters) == "bool[n] int(c[n]) < int(d[n])"
    assert computed("where(c, c, d)", parameters) == "bool"
    assert computed("fill(where(c, d), True)", parameters) == "bool"
    assert computed("+c", parameters) == "i64"
    assert value("True + i", parameters) == "i64[n] 1 + i[n]"
    assert computed("c ^ d", parameters) == "bool"


def test_integers_have_bits():
    assert value("(i & 3) | (~i ^ 1)", 'i: "i32[n]"') == "i64[n] i[n] & 3 | ~i[n] ^ 1"
    assert computed("i & 3", 'i: "u64[n]"') == "u64"


def test_a_test_of_an_integer_is_one_of_a_float():
    assert value("isnan(i)", 'i: "i32[n]"') == "bool[n] isnan(float(i[n]))"


def test_literals_take_the_type_of_what_they_meet():
    expr = result("x * 2", 'x: "f64[n]"').value
    assert expr.arguments[1] == Literal(2.0, Type(F64, weak=True))
    expr = result("i * 2", 'i: "i32[n]"').value
    assert expr.arguments[1] == Literal(2, Type(I64, weak=True))


def test_negative_zero_is_not_folded():
    assert value("x + -0.0") == "f32[m n] x[m, n] + -0.0"
    assert isinstance(result("x + -0.0").value.arguments[1], Apply)
    assert isinstance(result("x + -2.0").value.arguments[1], Literal)


def test_integer_literals_fit_their_type():
    assert computed("minimum(x, 18446744073709551615)", 'x: "u64[n]"') == "u64"
    problem, _ = mistake("return x + 1" + "0" * 400, 'x: "n"')
    assert problem == "the literal is too large for f32"


def test_whole_numbers_made_of_literals_fit_their_type():
    assert computed("i + 3 * 3**30 - 2**62 * 1", 'i: "i32[n]"') == "i64"
    for text in ("2**64", "10**1000000", "10000000000 * 10000000000", "(-2) ** 65"):
        problem, hint = mistake(f"return x * ({text})", 'x: "n"')
        assert problem == "this is a number that i64 does not hold"
        assert hint == "write one of its parts as a float: 10.0 ** 20"
    problem, _ = mistake("return x - (9223372036854775807 + 1)", 'x: "n"')
    assert problem == "this is 9223372036854775808, which i64 does not hold"


def test_typed_scalars_are_strong_and_others_are_not():
    assert computed("x * s", 'x: "f16[n]", s: "f64[]"') == "f64"
    kernel = program(
        'def f(x: "f64[n]", s: float = 1, k: int = 3, c: bool = True):\n    return x * s'
    )
    assert [(p.dtype.name, p.weak, p.default) for p in kernel.params[1:]] == [
        ("f64", True, 1.0),
        ("i64", True, 3),
        ("bool", True, True),
    ]
    (scalar,) = (n for n in nodes(kernel.results[0].value) if isinstance(n, Scalar))
    assert scalar.type.dtype is F64


def test_a_default_has_its_parameters_kind():
    found = mistakes('def f(x: "n", s: float = True, k: int = 2.5, a: "n" = 3):\n    return x')
    assert [problem for _, _, problem, _ in found] == [
        "s is a float, and its default is True",
        "k is an integer, and its default is 2.5",
        "a is an array and cannot have a default",
    ]


# Results (decision 11)


def test_a_result_has_the_promotion_of_the_arrays_that_it_depends_on():
    parameters = 'x: "f16[n]", y: "bf16[n]", z: "f8e4m3[n]", w: "f64[n]"'
    for expression, dtype in (
        ("x * 2", "f16"),
        ("y + y", "bf16"),
        ("x * z", "f16"),
        ("y * z", "bf16"),
        ("x * y", "f32"),
        ("x * w", "f64"),
        ("sum[n](x) / size(n)", "f16"),
        ("where(y > 0, x, 0)", "f32"),
    ):
        assert stored(expression, parameters) == dtype, expression


def test_a_result_depends_on_arrays_through_definitions():
    lines = body("a = exp(x)\nb = sum[n](a)\nreturn b * 2", 'x: "bf16[n]"')
    assert lines[-1] == "return bf16[] b * 2.0"


def test_an_element_type_in_the_annotation_wins():
    kernel = program('def f(x: "f16[n]") -> ("f32[n]", "i32[n]", "n"):\n    return x, x, x')
    assert [result.dtype.name for result in kernel.results] == ["f32", "i32", "f16"]


def test_an_outermost_cast_wins():
    assert stored("i8(x)") == "i8"
    assert stored("f8e4m3(x * 2)") == "f8e4m3"
    assert stored("fill(i8(where(x > 0, x)), 0)") == "i8"
    assert stored("f16(x) * 1") == "f32"
    assert body("q = i8(x)\nreturn q")[-1] == "return i8[m n] q"


def test_integers_indices_and_comparisons():
    assert stored("sum[n](i)", 'i: "i8[n]"') == "i64"
    assert stored("i", 'i: "i8[n]"') == "i64"
    assert stored("argmax[n](x)") == "i64"
    assert stored("n") == "i64"
    assert stored("x > 0") == "bool"


def test_without_floating_arrays_a_float_is_f32():
    assert stored("n * 0.5") == "f32"
    assert stored("s", 'i: "i32[n]", s: float') == "f32"


# Casts (decision 12)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_element_type_is_a_cast(dtype):
    expr = result(f"{dtype}(x)").value
    assert isinstance(expr, Cast)
    assert expr.to.name == dtype
    assert expr.explicit


def test_a_weak_float_is_not_rounded_before_a_cast():
    assert computed("x * f64(0.1)") == "f64"
    cast = result("f64(0.1)").value
    assert cast.operand.type.dtype is F64


def test_a_cast_is_strong():
    assert computed("f64(1) + x") == "f64"


def test_storage_promotion_holds_both():
    assert storage_promotion([F16, BF16]) is F32
    assert storage_promotion([F8E4M3, F8E5M2]) is F32
    assert storage_promotion([]) is None


@given(st.lists(st.sampled_from(FLOATS), min_size=1), st.randoms())
def test_storage_promotion_does_not_depend_on_order_unless_in_ties(dtypes, random):
    shuffled = list(dtypes)
    random.shuffle(shuffled)
    first, second = storage_promotion(dtypes), storage_promotion(shuffled)
    assert first is not None
    assert second is not None
    assert first.bits >= max(dtype.bits for dtype in dtypes)
    assert (first is second) or {first, second} <= {F16, BF16, F32}


@given(st.lists(TYPES, min_size=1), TYPES)
def test_a_weak_value_never_changes_where_a_float_is_strong(types, other):
    dtype, weak = promote(types)
    if not weak and dtype.kind == "float":
        assert promote([*types, Type(other.dtype, weak=True)]) == (dtype, False)


@given(st.lists(TYPES, min_size=1), st.randoms())
def test_promotion_does_not_depend_on_order(types, random):
    shuffled = list(types)
    random.shuffle(shuffled)
    assert promote(types) == promote(shuffled)


def test_text_shows_what_is_cast():
    assert to_text(result("f16(x) + n").value) == "f16(x[n]) + float(n)"


def test_no_type_holds_a_u64_and_a_signed_integer():
    parameters = 'c: "bool[n]", u: "u64[n]", i: "i64[n]"'
    problem, hint = mistake("return where(c, u, i)", parameters)
    assert "no type holds both" in problem
    assert "i64(x) wraps" in hint
    assert computed("where(c, u, 5)", parameters) == "u64"
