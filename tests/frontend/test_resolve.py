import re
import time

import numpy as np
import pytest

from redlang.errors import AxisError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend.parser import parse
from redlang.frontend.resolve import Signature, resolve
from redlang.frontend.scope import NamesScope
from redlang.frontend.syntax import Function
from redlang.ir.interpret import interpret
from redlang.ir.printing import to_text
from redlang.ir.program import Literal, Reduce
from redlang.source import SourceText
from tests.frontend.resolving import Outside, body, mistake, mistakes, program, resolution, value

ATTENTION = """
def attention(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    s = where(n <= m, s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""


def test_reductions_are_lifted_and_locals_keep_their_names():
    assert to_text(program(ATTENTION)) == (
        "program attention\n"
        "  param q: f32[b h m d]\n"
        "  param k: f32[b h n d]\n"
        "  param v: f32[b h n e]\n"
        "  axes b, h, m, d, n, e\n"
        "  sum.1: f32[b h m n] = sum[d](q[b, h, m, d] * k[b, h, n, d])\n"
        "  s: f32[b h m n] = sum.1 * rsqrt(float(size(d)))\n"
        "  s.1: f32[b h m n] absent = where(n <= m, s)\n"
        "  max.1: f32[b h m] = max[n](s.1)\n"
        "  p: f32[b h m n] absent = exp(s.1 - max.1)\n"
        "  sum.2: f32[b h m e] = sum[n](p * v[b, h, n, e])\n"
        "  sum.3: f32[b h m] = sum[n](p)\n"
        "  return f32[b h m e] sum.2 / sum.3\n"
    )


def test_resolving_is_quick():
    source = SourceText(ATTENTION.strip("\n"))
    syntax = parse(source)
    assert isinstance(syntax, Function)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        resolve(syntax, source, Signature(), NamesScope())
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01


def test_a_definition_is_pointwise_or_one_reduction():
    for definition in program(ATTENTION).definitions:
        operands = (
            definition.value.operands
            if isinstance(definition.value, Reduce)
            else (definition.value,)
        )
        assert not any(isinstance(operand, Reduce) for operand in operands)


def test_equal_reductions_are_computed_once():
    assert body("return exp(x - max[n](x)) + max[n](x)") == [
        "max.1: f32[m] = max[n](x[m, n])",
        "return f32[m n] exp(x[m, n] - max.1) + max.1",
    ]


def test_a_local_that_is_a_reduction_names_it():
    assert body("s = sum[n](x)\nt = sum[n](x)\nreturn s + t") == [
        "s: f32[m] = sum[n](x[m, n])",
        "return f32[m] s + s",
    ]


def test_rebinding_a_local_reads_the_value_before():
    assert body("s = exp(x)\ns = s + 1\ns = s * s\nreturn s") == [
        "s: f32[m n] = exp(x[m, n])",
        "s.1: f32[m n] = s + 1.0",
        "s.2: f32[m n] = s.1 * s.1",
        "return f32[m n] s.2",
    ]


def test_equal_reductions_of_a_rebound_local_are_different():
    lines = body("s = exp(x)\na = sum[n](s)\ns = s + 1\nreturn a + sum[n](s)")
    assert lines[1:] == [
        "a: f32[m] = sum[n](s)",
        "s.1: f32[m n] = s + 1.0",
        "sum.1: f32[m] = sum[n](s.1)",
        "return f32[m] a + sum.1",
    ]


def test_an_alias_of_an_array_can_be_indexed():
    assert body("y = x\nreturn y[1, n]")[-1] == "return f32[n] x[1, n]"


# Names and axes (decisions 1 and 2)


def test_axes_come_in_the_order_of_the_parameters_and_then_of_appearance():
    kernel = program('def f(y: "c a", x: "a b"):\n    k = axis(size(a))\n    return x * y')
    assert [axis.name for axis in kernel.axes] == ["c", "a", "b", "k"]
    assert kernel.results[0].axes == ("c", "a", "b")


def test_parameters_axes_and_locals_share_one_namespace():
    found = mistakes('def f(x: "m n", n: float):\n    x = exp(x)\n    m = x\n    return x')
    assert [(line, column, problem) for line, column, problem, _ in found] == [
        (1, 17, "n is both a parameter and an axis"),
        (2, 5, "x is a parameter and cannot be assigned"),
        (3, 5, "m is an axis and cannot be assigned"),
    ]


@pytest.mark.parametrize("statement", ["exp = x", "sum = x", "f16 = x", "inf = x", "size = x"])
def test_builtins_are_reserved(statement):
    name = statement.split()[0]
    problem, hint = mistake(f"{statement}\nreturn x")
    assert problem == f"{name} is a builtin of redlang and cannot name a local"
    assert hint == f"choose another name, such as {name}_"


def test_builtins_cannot_name_parameters_or_axes():
    found = mistakes('def f(x: "m sum", exp: float):\n    return x')
    assert [problem for _, _, problem, _ in found] == [
        "sum is a builtin of redlang and cannot name an axis",
        "exp is a builtin of redlang and cannot name a parameter",
    ]


def test_the_kernels_own_name_is_in_no_namespace():
    assert body("f = exp(x)\nreturn f") == ["f: f32[m n] = exp(x[m, n])", "return f32[m n] f"]
    assert mistake("return f(x)")[0] == "f calls itself"


def test_infinities_nan_and_pi_are_builtins():
    assert value("where(x == inf, -inf, where(isnan(x), nan, pi))") == (
        "f32[m n] where(x[m, n] == inf, -inf, where(isnan(x[m, n]), nan, 3.141592653589793))"
    )


def test_reducing_an_axis_that_the_operand_lacks_is_an_error_with_a_hint():
    problem, hint = mistake("return sum[n](y)", 'x: "m n", y: "m"')
    assert problem == "sum reduces axis n, which its operand does not have (it has m)"
    assert hint == "the sum of something constant along n is size(n) * ..."


@pytest.mark.parametrize(
    ("op", "operand", "hint"),
    [
        ("prod", "y", "the product of something constant along n is (...) ** size(n)"),
        ("count", "y > 0", "something constant along n counts where(..., size(n), 0) times"),
        ("max", "y", "the max of something constant along n is that value itself"),
        ("argmax", "y", ""),
    ],
)
def test_reducing_a_constant_gets_a_hint(op, operand, hint):
    assert mistake(f"return {op}[n]({operand})", 'x: "m n", y: "m"')[1] == hint


def test_index_expressions_and_masks_carry_their_axis():
    assert value("sum[n](n)") == "i64[] sum.1"
    assert body("return count[n](n <= m)")[0] == "count.1: i64[m] = count[n](n <= m)"
    assert body("return sum[n](where(n <= m, 1.0))")[0] == (
        "sum.1: f32[m] = sum[n](where(n <= m, 1.0))"
    )


def test_several_axes_reduce_in_the_order_written():
    assert body("return max[n, m](x)")[0] == "max.1: f32[] = max[n, m](x[m, n])"
    assert mistake("return max[n, n](x)")[0] == "max names axis n twice"
    problem, hint = mistake("return max(x)")
    assert problem == "max does not say over which axis"
    assert hint == "max[n](...); the operand has m n"
    # What is meant is what no result keeps.
    for axes, meant in (("m", "n"), ("n", "m"), ("", "m, n"), ("m n", "n")):
        ((_, _, _, hint),) = mistakes(f'def f(x: "m n") -> "{axes}":\n    return sum(x)')
        assert hint == f"sum[{meant}](...); the operand has m n"


# Top-k and arg-reductions (decision 3)


def test_topk_makes_a_named_axis():
    assert body("w, i = topk[n:j](x, 4)\nreturn sum[j](w), i") == [
        "w: f32[m j], i: i64[m j] = topk[n:j](x[m, n], 4)",
        "sum.1: f32[m] = sum[j](w)",
        "return f32[m] sum.1",
        "return i64[m j] i",
    ]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("topk[n:m](x, 2)", "topk makes axis m of extent 2, and m is an axis already"),
        ("topk[n:j](y, 4)", "the operand of topk has axis j already"),
        ("topk[n:a](x, 2)", "a is a value and cannot name an axis"),
        ("topk[n:exp](x, 2)", "exp is a builtin of redlang and cannot name an axis"),
        ("topk[m:k, n](x, 2)", "topk makes one axis, named behind the last: topk[h, w:j]"),
        ("topk[m:k, n:l](x, 2)", "topk makes one axis, named behind the last: topk[h, w:j]"),
    ],
)
def test_what_topk_cannot_name(call, problem):
    statements = f"a = x\nv, i = {call}\nreturn v"
    assert mistake(statements, 'x: "m n", y: "n j=4"')[0] == problem


def test_topk_may_use_an_axis_of_its_extent_again():
    lines = body("v, i = topk[n:j](x, 4)\nw, k = topk[n:j](-x, 4)\nreturn sum[j](v * w)")
    assert lines[2] == "sum.1: f32[m] = sum[j](v * w)"


def test_topk_makes_an_anonymous_axis_that_matches_a_literal():
    kernel = program('def f(x: "t e") -> ("t 8", "8 t"):\n    return topk[e](x, 8)')
    assert kernel.results[0].axes == ("t", "8")
    assert kernel.results[1].axes == ("8", "t")


def test_two_anonymous_axes_do_not_meet():
    text = """
def f(x: "t e") -> ("t 2", "t 2"):
    v, i = topk[e](x, 2)
    w, j = topk[e](-x, 2)
    return v, w
"""
    kernel = program(text)
    assert [result.axes for result in kernel.results] == [("t", "2"), ("t", "2.1")]
    found = mistakes(text.replace("return v, w", "return v + w, w"))
    assert found[0][2] == "the result has axis 2.1, which its annotation does not list"


def test_an_anonymous_axis_cannot_be_reduced():
    assert mistake("return sum[8](x)", 'x: "m 8"')[0] == "'8' is not the name of an axis"


@pytest.mark.parametrize("k", ["k", "2.0", "True", "0", "-1", "2 + 2"])
def test_k_is_a_positive_integer_literal(k):
    (_, _, problem, _), *others = mistakes(
        f'def f(x: "m n", k: int):\n    v, i = topk[n:j](x, {k})\n    return sum[j](v), i'
    )
    assert "topk" in problem
    assert others == []


def test_k_may_come_through_a_local():
    assert "topk[n:j](x[m, n], 4)" in body("k = 4\nv, i = topk[n:j](x, k)\nreturn v")[0]


def test_arg_reductions_over_several_axes_return_one_index_each():
    assert body("i, j = argmax[m, n](x)\nreturn i, j")[0] == (
        "i: i64[], j: i64[] = argmax[m, n](x[m, n])"
    )
    assert body("v, i, j = topk[m, n:k](x, 3)\nreturn v")[0] == (
        "v: f32[k], i: i64[k], j: i64[k] = topk[m, n:k](x[m, n], 3)"
    )
    problem, hint = mistake("return argmax[m, n](x) + 1")
    assert problem == "argmax gives 2 values, and one is needed here"
    assert hint == "take them apart first: a, b = argmax[m, n](...)"


def test_a_call_with_several_results_can_be_returned_as_it_is():
    kernel = program('def f(x: "t e"):\n    return topk[e:j](x, 2)')
    assert [to_text(result.value) for result in kernel.results] == ["topk.1.0", "topk.1.1"]


# Declared axes and subscripts (decision 4)


def test_an_axis_is_declared_from_sizes_literals_and_int_parameters():
    kernel = program(
        'def f(x: "p d", k: int):\n    n = axis(16 * size(p) + k)\n    return n * size(n)'
    )
    assert to_text(kernel).splitlines()[3] == "  axes p, d, n=16 * size(p) + k"


def test_an_axis_may_use_a_number_from_outside():
    kernel = program('def f(x: "p"):\n    n = axis(K * size(p))\n    return n', {"K": 3})
    assert "n=K * size(p)" in to_text(kernel)


@pytest.mark.parametrize(
    ("extent", "problem"),
    [
        ("size(m) / 2", "the extent of an axis is an integer"),
        ("y", "the extent of an axis is made of sizes, literals and int parameters"),
        ("sum[n](n)", "the extent of an axis is made of sizes, literals and int parameters"),
        ("-3", "the extent of an axis is -3"),
    ],
)
def test_what_an_axis_cannot_be_declared_from(extent, problem):
    assert mistake(f"k = axis({extent})\nreturn k", 'x: "m n", y: "i32[n]"')[0] == problem


def test_an_axis_is_declared_by_a_statement_of_its_own():
    assert mistake("return x + axis(3)")[0] == "axis declares an axis and stands alone"
    assert mistake("n = axis(3)\nreturn n")[0] == "n is an axis and cannot be assigned"
    for statement in ("k = axis(1, 2)", "a, b = axis(3)", "k = axis[n](3)", "k = axis(size=3)"):
        assert mistake(f"{statement}\nreturn x")[0] == "axis declares one axis from one extent"
    assert mistake("k = axis(foo)\nreturn k")[0].startswith("foo is no parameter")
    assert (
        mistake("k = x\nk = axis(3)\nreturn x")[0] == "k is a local already and cannot be an axis"
    )


def test_a_bare_new_name_as_a_subscript_is_an_axis_of_that_extent():
    lines = to_text(program('def f(x: "n l") -> "i j":\n    return sum[l](x[i, l] * x[j, l])'))
    assert lines.splitlines()[2:] == [
        "  axes n, l, i=size(n), j=size(n)",
        "  sum.1: f32[i j] = sum[l](x[i, l] * x[j, l])",
        "  return f32[i j] sum.1",
    ]


def test_a_bare_subscript_does_not_look_outside():
    kernel = program('def f(x: "n l") -> "i l":\n    return x[i, l]', {"i": 5})
    assert [axis.name for axis in kernel.axes] == ["n", "l", "i"]
    ((_, _, problem, hint),) = mistakes('def f(x: "n l") -> "l":\n    return x[i, l]', {"i": 5})
    assert problem == "the result has axis i, which its annotation does not list"
    assert "to read at the number i from outside, write i + 0" in hint


def test_a_local_as_a_subscript_is_its_value():
    lines = body("i = size(n) - 4\nreturn fill(x[i, n], 0)")
    assert lines[-1] == "return f32[n] fill(x[i?, n], 0.0)"


# Literal axes and composites (decision 5)


def test_an_axis_may_have_a_fixed_extent():
    kernel = program('def f(x: "m n=128", y: "n"):\n    return sum[n](x * y)')
    assert [axis.extent for axis in kernel.axes] == [None, 128]
    found = mistakes('def f(x: "m n=4", y: "m n=5"):\n    return x * y')
    assert found[0][2] == "axis n has extent 5 here, and 4 before"


def test_a_bare_literal_is_an_anonymous_axis():
    kernel = program('def f(x: "m 8", y: "8"):\n    return x * y')
    assert [(axis.name, axis.extent) for axis in kernel.axes] == [("m", None), ("8", 8)]
    assert kernel.results[0].axes == ("m", "8")


def test_an_axis_stands_once_in_an_annotation():
    found = mistakes('def f(x: "i i") -> "i":\n    return x')
    assert found[0][:3] == (1, 13, "axis i stands twice in one annotation")
    assert found[0][3] == 'tell the dimensions apart, "i1 i2", and write x[i, i] below'
    found = mistakes('def f(x: "8 8"):\n    return x')
    assert found[0][3] == "name them: i=8 j=8"


def test_the_diagonal_is_a_subscript():
    kernel = program('def f(x: "p q j") -> "i j":\n    return x[i, i, j]')
    assert to_text(kernel.results[0].value) == "x[i, i, j]"
    assert to_text(kernel).splitlines()[2] == "  axes p, q=size(p), j, i=size(p)"


def test_an_axis_named_by_subscripts_has_one_extent():
    kernel = program('def f(x: "m 4", y: "n") -> "i":\n    return x[0, i] * y[i]')
    assert to_text(kernel).splitlines()[3] == "  axes m >= 1, 4, n=4, i=4"
    kernel = program('def f(x: "4", y: "n") -> "i":\n    return y[i] * x[i] * y[i]')
    assert to_text(kernel).splitlines()[3] == "  axes 4, n=4, i=size(n)"
    lines = body("return fill(x[i] * y[i], 0)", 'x: "(t g=4)", y: "t"')
    assert lines == ["return f32[i] fill(x[i // size(g), i % size(g)] * y[i?], 0.0)"]
    problem, _ = mistake("return x[0, i] * y[i]", 'x: "m 4", y: "5"')
    assert problem == "i has extent 4, and 5 has extent 5"


def test_a_parameters_axis_as_a_subscript_is_an_index_that_may_miss():
    kernel = program('def f(x: "i j") -> "i":\n    return fill(x[i, i], 0)')
    assert to_text(kernel.results[0].value) == "fill(x[i, i?], 0.0)"


def test_a_composite_dimension_is_two_axes():
    kernel = program('def f(q: "(g r) d", k: "g n d") -> "(g r) n":\n    return sum[d](q * k)')
    assert kernel.array("q").axes == ("g", "r", "d")
    assert kernel.results[0].axes == ("g", "r", "n")
    assert len(kernel.results[0].dims) == 2


def test_how_a_composite_splits_must_be_decided():
    ((_, column, problem, hint),) = mistakes('def f(x: "(g r) m"):\n    return x')
    assert (column, problem) == (11, "no argument decides how (g r) splits")
    assert hint == (
        "write all but one extent as a number, as in (g r=8), or add an array that has such an "
        'axis, even for that only: sizes: "r"'
    )
    ((*_, hint),) = mistakes('def f(x: "(g=2 c h)"):\n    return x')
    assert "as in (g c h=8), or" in hint
    for parameters in (
        'x: "(g r=2)"',
        'x: "(g=2 r)"',
        'x: "(g r)", sizes: "r"',
        'x: "(a b)", y: "(b c)", z: "(c=2 d=3)", w: "(a d)"',
    ):
        assert program(f"def f({parameters}):\n    return fill(where(True, x), 0)")


RAGGED = """
def blocks(x: "m (t g=128)") -> ("m (t g)", "m t"):
    top = max[g](abs(x))
    return x / top, top
"""


def test_a_ragged_tail_is_absent_and_not_stored():
    assert to_text(program(RAGGED)).splitlines()[2:] == [
        "  axes m, t=(size((t g)) + 127) // 128, g=128, (t g)",
        "  top: f32[m t] = max[g](abs(where(t * size(g) + g < size((t g)), "
        "x[m, t, minimum(g, size((t g)) - t * size(g) - 1)])))",
        "  return f32[m (t g)] where(t * size(g) + g < size((t g)), "
        "x[m, t, minimum(g, size((t g)) - t * size(g) - 1)]) / top",
        "  return f32[m t] top",
    ]
    assert program(RAGGED).results[0].condition is not None
    assert program(RAGGED).results[1].condition is None


def test_a_composite_that_divides_is_not_guarded():
    assert "top: f32[m t] = max[g](abs(x[m, t, g]))" in to_text(program(RAGGED, ragged=frozenset()))


def test_a_ragged_tail_may_not_be_returned_elsewhere():
    found = mistakes('def f(x: "m (t g=128)") -> "m t g":\n    return x')
    assert found[0][2] == "the result may be absent in places"


def test_an_empty_annotation_is_zero_dimensional():
    kernel = program('def f(x: "") -> "":\n    return x + 1', dtypes={"x": "f16"})
    assert kernel.params[0].dims == ()
    assert kernel.results[0].dtype.name == "f16"


def test_an_axis_stands_once_in_a_result():
    found = mistakes('def f(x: "m n") -> "m m":\n    return x')
    assert found[0][:3] == (1, 23, "axis m stands twice in one annotation")


def test_a_result_is_broadcast_along_an_annotated_axis_that_it_lacks():
    kernel = program('def f(x: "m n") -> "m n k=3 2":\n    return sum[n](x)')
    assert kernel.results[0].axes == ("m", "n", "k", "2")
    assert [axis.extent for axis in kernel.axes] == [None, None, 3, 2]


def test_size_takes_named_axes():
    assert value("size(n) * size(m, n)") == "i64[] size(n) * (size(m) * size(n))"
    assert mistake("return size()")[0] == "size takes an axis in parentheses"
    assert mistake("return size[n](n)")[0] == "size takes an axis in parentheses"
    assert mistake("return size(n + 1)")[0] == "size takes an axis, and this is none"
    problem, hint = mistake("return size(x)")
    assert problem == "size takes an axis, and x is none"
    assert hint == "axes are m, n"


# Absence (decision 6)


def test_absence_passes_through_arithmetic_and_ends_in_reductions():
    lines = body("a = where(x > 0, x)\nb = a * 2 + m\nreturn sum[n](b)")
    assert [" absent" in line for line in lines] == [True, True, False, False]


def test_fill_gives_absent_elements_a_value():
    assert value("fill(where(x > 0, x), 1)") == (
        "f32[m n] fill(where(x[m, n] > 0.0, x[m, n]), 1.0)"
    )


def test_fill_of_what_is_never_absent_is_an_error():
    problem, hint = mistake("s = where(x > 0, x)\nreturn fill(mean[n](s), 0)")
    assert problem == "fill has nothing to fill: mean[n](s) is absent nowhere"
    assert hint.endswith("for another one write where(count[n](mask) > 0, ..., 0)")
    problem, hint = mistake("return fill(x + 1, 0)")
    assert problem == "fill has nothing to fill: x + 1 is absent nowhere"
    assert hint.startswith("nothing in it is masked, so leave fill out")


def test_a_macro_may_fill_what_is_never_absent_in_some_call():
    names = {"filled": Outside("@redlang.function\ndef filled(x):\n    return fill(x, 0)")}
    assert body("return filled(x)", names=names)[-1].endswith("x[m, n]")
    assert "fill" in body("return filled(where(n <= m, x))", names=names)[-1]


def test_fill_of_a_last_group_that_is_full_is_none():
    text = 'def f(x: "(t g=4)") -> "(t g)":\n    return fill(x * 2, 0)'
    for ragged in (None, frozenset(), frozenset(["(t g)"])):
        assert program(text, ragged=ragged).results


def test_returning_something_absent_needs_fill():
    problem, hint = mistake("return where(x > 0, x)")
    assert problem == "the result may be absent in places"
    assert hint.startswith("give those elements a value: fill(..., 0)")


def test_the_condition_of_where_is_a_bool():
    problem, hint = mistake("return fill(where(x, 1.0), 0)")
    assert problem == "the condition of where takes a bool, and this is a float"
    assert hint == "compare it: where(c != 0, a)"
    assert mistake("return where(m, 1, 2)")[0] == (
        "the condition of where takes a bool, and this is an integer"
    )


def test_mean_divides_by_the_number_of_visible_elements():
    assert body("return mean[n](where(x > 0, x))") == [
        "sum.1: f32[m] = sum[n](where(x[m, n] > 0.0, x[m, n]))",
        "count.1: i64[m] = count[n](x[m, n] > 0.0)",
        "return f32[m] sum.1 / float(count.1)",
    ]


def test_mean_counts_where_the_mask_does_not_vary():
    lines = body("return mean[n](where(m > 0, x))")
    assert lines[1] == "return f32[m] sum.1 / float(where(m > 0, size(n), 0))"
    lines = body("return mean[m, n](where(m > 0, x))")
    assert lines[1:] == [
        "count.1: i64[] = count[m](m > 0)",
        "return f32[] sum.1 / float(count.1 * size(n))",
    ]


def test_mean_is_a_sum_over_the_extent():
    assert body("return mean[m, n](x)")[-1] == "return f32[] sum.1 / float(size(m) * size(n))"


def test_count_any_and_all_take_bools():
    for op in ("count", "any", "all"):
        problem, hint = mistake(f"return {op}[n](x)")
        assert problem == f"{op} takes a bool, and this is a float"
        assert hint == f"compare it: {op}[n](x != 0)"


# Logic (decision 7)


def test_words_and_chains_act_on_each_element():
    assert value("not (0 < x <= 1) and (m < n or n == 0)") == (
        "bool[m n] ~((0.0 < x[m, n]) & (x[m, n] <= 1.0)) & ((m < n) | (n == 0))"
    )


def test_a_conditional_expression_gets_a_hint_to_where():
    problem, hint = mistake("return x if x > 0 else 0")
    assert hint == "write where(c, x, y)"
    assert "chooses once" in problem


def test_words_take_bools():
    assert mistake("return x and (x > 0)")[0] == "and takes a bool, and this is a float"
    assert mistake("return not m")[0] == "not takes a bool, and this is an integer"
    assert mistake("return x & 1")[0] == "& takes bools or integers, and this is a float"
    assert mistake("return (x > 0) & m")[0] == "& joins a bool and an integer"


# Names from outside (decision 9)


class Config:
    eps = 1e-5
    heads = 4
    flag = True


def test_numbers_from_outside_are_scalars():
    names = {"cfg": Config, "SCALE": np.float32(2.5), "N": np.int64(3)}
    kernel = program('def f(x: "n"):\n    return where(cfg.flag, x * SCALE + cfg.eps, N)', names)
    assert [(p.name, p.dtype.name, p.captured) for p in kernel.params[1:]] == [
        ("cfg.flag", "bool", True),
        ("SCALE", "f64", True),
        ("cfg.eps", "f64", True),
        ("N", "i64", True),
    ]


def test_the_kind_of_a_number_selects_the_specialisation():
    names = {"a": 2}
    assert program('def f(x: "n"):\n    return x * a', names).params[1].dtype.name == "i64"
    wide = program('def f(x: "n"):\n    return x * a', names, kinds={"a": "float"})
    assert wide.params[1].dtype.name == "f64"


def test_captures_say_where_a_number_is_found():
    resolved = resolution('def f(x: "n"):\n    return x * cfg.eps * cfg.eps', {"cfg": Config})
    (capture,) = resolved.captures
    assert (capture.name, capture.path) == ("cfg.eps", "cfg.eps")
    assert capture.scope.find(capture.path).value == 1e-5


def test_locals_and_axes_hide_what_is_outside():
    lines = body("a = exp(x)\nreturn a + m", names={"a": 3, "m": 4})
    assert lines[-1] == "return f32[m n] a + float(m)"


def test_an_array_from_outside_should_be_a_parameter():
    problem, hint = mistake("return x * w", names={"w": np.ones(3)})
    assert problem == "w is an array from outside the kernel"
    assert hint == 'make it a parameter with its own axes, such as w: "m n"'


def test_an_indexed_array_from_outside_should_be_a_parameter():
    assert mistake("return x * w[m]", names={"w": np.ones(3)})[0] == (
        "w is an array from outside the kernel"
    )


def test_a_macro_or_kernel_is_no_value():
    macro = Outside("@redlang.function\ndef g(x):\n    return x")
    assert mistake("return x * g", names={"g": macro})[0] == (
        "g is a function and stands here without a call"
    )
    own = Outside('@redlang.kernel\ndef f(x: "n"):\n    return x')
    assert mistake("return x * f", names={"f": own})[0].startswith("f is no parameter")


def test_other_things_from_outside_are_named():
    assert mistake("return x * w", names={"w": [1, 2]})[0] == (
        "w is a list, and only numbers can be used from outside"
    )


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("xx + 1", "did you mean x?"),
        ("x * cfg.epss", "did you mean cfg.eps?"),
        ("x * SCALEE", "did you mean SCALE?"),
        ("exq(x)", "did you mean exp?"),
        ("relu(x)", "redlang writes maximum(x, 0)"),
        ("np.exp(x)", "use redlang's own exp"),
        ("sum[nn](x)", "did you mean n?"),
        ("cumsum[n](x + 1)", "there are no scans"),
        ("sum[N](x)", "did you mean n?"),
        ("M * x", "did you mean m?"),
        ("variance[n](x)", "the library has it: std.var,"),
        ("std[n](x)", "the library has it: std.std,"),
        ("np.std[n](x)", "the library has it: std.std,"),
        ("sum[l](where(l <= n, x[m, l]))", "l becomes an axis where x takes it"),
        ("median[n](x)", "argmax and topk"),
        ("atan2(x, x)", "there are sin and cos"),
        ("softmax[n](x)", "the library has it: std.softmax, after `from redlang import std`"),
        ("sotfmax[n](x)", "the library has it: std.softmax, after `from redlang import std`"),
        ("std.var[n](x)", "the library has it: std.var, after `from redlang import std`"),
    ],
)
def test_misspelled_names_get_the_nearest_match(expression, hint):
    names = {"cfg": Config, "SCALE": 1.0, "np": np}
    assert hint in mistake(f"return {expression}", 'x: "m n"', names)[1]


# Mistakes


def test_a_name_of_the_result_alone_is_told_from_an_unknown_one():
    found = mistakes('def f(x: "m n") -> "m j=3":\n    return sum[n](x) * j')
    assert found[0][3].startswith("j stands in the result's annotation")


@pytest.mark.parametrize("scan", ["cumsum", "np.cumprod", "cummax"])
@pytest.mark.parametrize("along", ["m", "n"])
def test_the_hint_for_a_scan_is_one(scan, along, rng):
    """What it says is pasted, and gives what NumPy gives."""
    hint = mistake(f"y = 2\nreturn {scan}[{along}](x) * y", names={"np": np})[1]
    said = re.fullmatch(r".*axis, (.*) on a line of its own, then (.*), is one", hint)
    assert said is not None
    local, value = said.groups()
    found = program(f'def f(x: "m n") -> "m n":\n    y = 2\n    {local}\n    return {value} * y')
    x = rng.standard_normal((3, 4)).astype(np.float32)
    right = {"cumsum": np.add, "np.cumprod": np.multiply, "cummax": np.maximum}[scan]
    (result,) = interpret(found, {"x": x})
    expected = 2 * right.accumulate(x.astype(np.float64), axis="mn".index(along))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_all_mistakes_are_reported_together_and_follow_ups_are_not():
    found = mistakes(
        """
def f(x: "m n", y: "m"):
    a = exp(x) + foo
    b = a * 2
    c = sum[k](b)
    n = 3
    return where(c, a), sum[n](y) + bar
"""
    )
    assert [(line, problem) for line, _, problem, _ in found] == [
        (2, "foo is no parameter, axis, local, builtin or number from outside"),
        (4, "k is no axis of this kernel"),
        (5, "n is an axis and cannot be assigned"),
        (6, "sum reduces axis n, which its operand does not have (it has m)"),
        (6, "bar is no parameter, axis, local, builtin or number from outside"),
    ]


def test_a_parameter_with_a_mistake_is_not_reported_again():
    found = mistakes('def f(x: "f33[m n]", y) -> "m k":\n    return sum[n](x) + sum[k](y)')
    assert [problem for _, _, problem, _ in found] == [
        "f33 is no element type",
        "parameter y has no annotation",
    ]


def test_each_kind_of_mistake_has_its_class():
    for expression, kind in (
        ("sum[k](x)", AxisError),
        ("x & 1", DTypeError),
        ("foo", UnknownNameError),
    ):
        with pytest.raises(kind):
            body(f"return {expression}")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("exp(x, x)", "exp takes 1 argument, and 2 are given"),
        ("maximum(x)", "maximum takes 2 arguments, and 1 is given"),
        ("where(x)", "where takes 2 or 3 arguments, and 1 is given"),
        ("clip(x, 0)", "clip takes 3 arguments, and 2 are given"),
        ("fill(x)", "fill takes 2 arguments, and 1 is given"),
        ("sum[n](x, x)", "sum takes 1 argument, and 2 are given"),
        ("topk[n](x)", "topk takes 2 arguments, and 1 is given"),
        ("f16()", "f16 takes 1 argument, and 0 are given"),
        ("exp[n](x)", "exp reduces nothing and takes no axes"),
        ("exp(x, base=2)", "exp takes no keywords"),
        ("sum[n](x, keepdims=True)", "sum takes no keywords"),
        ("sum[n:j](x)", "sum makes no new axis"),
        ("float(x)", "float is for annotations; a cast names its element type"),
        ("max(x, 0)", "max takes 1 argument, and 2 are given"),
        ("exp", "exp is a function and stands here without a call"),
        ("x(m)", "x is a value and cannot be called"),
        ("n(m)", "n is an axis and cannot be called"),
        ("K(x)", "K is a number and cannot be called"),
        ("y[m]", "y is no parameter, axis, local, builtin or number from outside"),
        ("K[m]", "K is no array parameter, and only those take subscripts"),
        ("n[m]", "n is no array parameter, and only those take subscripts"),
    ],
)
def test_wrong_calls(expression, problem):
    assert mistake(f"return {expression}", names={"K": 3})[0] == problem


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("sum(x, axis=1)", "the axis is named behind sum: sum[n](...); the operand has m n"),
        ("max[n](x, dim=1)", "the axis is named behind max: max[n](...); the operand has m n"),
        ("sum[n](x, where=x > 0)", "leave elements out by a mask: sum[n](where(c, x))"),
        ("sum[n](x, dtype=1)", "cast the operand: sum[n](f64(x))"),
        ("clip(x, min=0, max=1)", "give them by position: clip(x, low, high)"),
    ],
)
def test_keywords_of_other_libraries_are_answered(expression, hint):
    assert mistake(f"return {expression}")[1] == hint


def test_the_k_of_topk_may_be_an_integer_from_outside():
    names = {"K": 3, "h": 2.5}
    lines = body("v, i = topk[n:j](x, K)\nreturn v", names=names)
    assert lines[0].endswith("topk[n:j](x[m, n], 3)")
    problem, hint = mistake("v, i = topk[n:j](x, k)\nreturn sum[j](v)")
    assert problem == "the k of topk is an integer literal, and k means nothing here"
    assert "name an integer that is defined outside" in hint
    for k in ("h", "size(n)", "s"):
        found = mistakes(
            f'def f(x: "m n", s: int) -> ("m j", "m j"):\n    return topk[n:j](x, {k})', names
        )
        known = ", and h is a float" if k == "h" else ""
        assert found[0][2] == f"the k of topk is an integer literal{known}"
        assert not any("returned" in problem for _, _, problem, _ in found)


def test_the_number_of_results_must_match_the_annotation():
    found = mistakes('def f(x: "m n") -> ("m", "m"):\n    return sum[n](x)')
    assert found[0][2] == "1 result is returned, and the annotation describes 2"


def test_the_number_of_targets_must_match_the_values():
    assert mistake("a, b = x\nreturn a")[0] == "1 value is assigned to 2 names"
    problem, hint = mistake("a = topk[n:j](x, 2)\nreturn a")
    assert problem == "2 values are assigned to 1 name"
    assert hint == "topk gives values and indices: v, i = topk[e](p, 8)"
    problem, hint = mistake("i = argmax[m, n](x)\nreturn i")
    assert problem == "2 values are assigned to 1 name"
    assert hint == "argmax over 2 axes gives one index for each"


def test_results_list_every_axis_of_their_value():
    found = mistakes('def f(x: "m n") -> "m":\n    return x')
    assert found[0][2:] == (
        "the result has axis n, which its annotation does not list",
        "reduce it, sum[n](...), or add n to the annotation",
    )


def test_literals_are_literals_under_any_name():
    kernel = program('def f(x: "n"):\n    half = 0.5\n    return x * half')
    assert kernel.definitions == ()
    assert isinstance(kernel.results[0].value.arguments[1], Literal)


def test_errors_are_redlangs():
    with pytest.raises(RedlangError) as caught:
        body("return foo")
    assert str(caught.value).startswith("k.py:2:12: names: foo is no parameter")
