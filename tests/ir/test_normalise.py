from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.ir.interpret import interpret
from redlang.ir.normalise import normalise
from redlang.ir.printing import to_text
from redlang.ir.program import ArrayParam
from redlang.ir.verify import verify
from tests.frontend.resolving import Outside, program
from tests.kernels import CORPUS, program_of

CHOOSING = Outside(
    """
@redlang.function
def chosen(x, causal=False, scale=nan):
    y = x * where(isnan(scale), 2.0, scale)
    return where(~causal | (x > 0), y)
"""
)


def lines(text, names=None, **options):
    """Return the definitions and results of a normalised kernel as text."""
    normal = normalise(program(text, names, **options))
    heads = ("program", "param", "axes")
    kept = [line.strip() for line in to_text(normal).splitlines()]
    return [line for line in kept if not line.startswith(heads)]


def of(statements, parameters='x: "m n"', names=None, **options):
    """Return the normal form of a kernel with these statements."""
    body = "".join(f"    {line}\n" for line in statements.split("\n"))
    return lines(f"def f({parameters}):\n{body}", names, **options)


# Masks


@pytest.mark.parametrize(
    ("statements", "condition"),
    [
        ("return sum[n](where(n <= m, x, 0))", "n <= m"),
        ("return sum[n](where(n <= m, 0, x))", "~(n <= m)"),
        ("w = where(n <= m, x, 0)\nreturn sum[n](w)", "n <= m"),
    ],
)
def test_zeros_in_a_sum_take_no_part(statements, condition):
    found = [line for line in of(statements) if line.startswith("sum.1")]
    assert found == [f"sum.1: f32[m] = sum[n](x[m, n]) if {condition}"]


@pytest.mark.parametrize("operand", ["where(n <= m, x, 1)", "2 * where(n <= m, x, 0)"])
def test_other_choices_in_a_sum_stay(operand):
    assert not any(" if " in line for line in of(f"return sum[n]({operand})"))


def test_masks_become_conditions():
    found = of("s = where(n <= m, x)\np = exp(s - max[n](s))\nreturn sum[n](p)")
    assert found == [
        "s: f32[m n] = x[m, n]",
        "max.1: f32[m] = max[n](s) if n <= m",
        "p: f32[m n] = exp(s - max.1)",
        "sum.1: f32[m] = sum[n](p) if n <= m",
        "return f32[m] sum.1",
    ]


def test_conditions_join_and_each_stands_once():
    found = of("s = where(n <= m, x)\nt = where(x > 0, s * s)\nreturn sum[n](t + s)")
    assert "sum.1: f32[m] = sum[n](t + s) if (n <= m) & (x[m, n] > 0.0)" in found


def test_fill_chooses_by_the_condition():
    assert of("return fill(where(x > 0, x), 1)") == [
        "return f32[m n] where(x[m, n] > 0.0, x[m, n], 1.0)"
    ]


def test_what_fills_may_be_absent_itself():
    found = of("a = fill(where(x > 0, x), where(x < -1, x))\nreturn sum[n](a)")
    assert found[-2] == "sum.1: f32[m] = sum[n](a) if (x[m, n] > 0.0) | (x[m, n] < -1.0)"


def test_an_absent_condition_makes_the_result_absent():
    found = of("c = where(n > 0, x > 1)\nreturn sum[n](where(c, x, 1))")
    assert found == [
        "c: bool[m n] = x[m, n] > 1.0",
        "sum.1: f32[m] = sum[n](where(c, x[m, n], 1.0)) if n > 0",
        "return f32[m] sum.1",
    ]


def test_a_mask_keeps_the_axis_that_it_brings():
    assert of("return sum[n](where(n <= m, 1.0))") == [
        "sum.1: f32[m] = sum[n](1.0) if n <= m",
        "return f32[m] sum.1",
    ]
    assert of("s = where(n <= m, 1.0)\nreturn fill(s, 0)") == [
        "return f32[m n] where(n <= m, 1.0, 0.0)"
    ]


def test_a_mask_that_is_settled_still_reduces_its_axis():
    found = of("return sum[n](where((n < 0) | True, 1.0))")
    assert found[0] == "sum.1: f32[] = sum[n](1.0) if n >= 0"


def test_choices_by_literals_cost_nothing():
    names = {"chosen": CHOOSING}
    assert of("return sum[n](chosen(x))", names=names)[-2:] == [
        "sum.1: f32[m] = sum[n](chosen.y)",
        "return f32[m] sum.1",
    ]
    assert of("return sum[n](chosen(x))", names=names)[0] == "chosen.y: f32[m n] = x[m, n] * 2.0"
    found = of("return sum[n](chosen(x, causal=True, scale=3))", names=names)
    assert found[0] == "chosen.y: f32[m n] = x[m, n] * 3.0"
    assert found[1] == "sum.1: f32[m] = sum[n](chosen.y) if x[m, n] > 0.0"


def test_filling_what_is_always_there_does_nothing():
    found = of("a = chosen(x)\nreturn fill(a, 0)", names={"chosen": CHOOSING})
    assert found == ["chosen.y: f32[m n] = x[m, n] * 2.0", "return f32[m n] chosen.y"]


def test_conjunctions_are_taken_apart():
    found = of("s = where((n <= m) & (x > 0), x)\nreturn sum[n](where(n <= m, s))")
    assert found[-2] == "sum.1: f32[m] = sum[n](s) if (n <= m) & (x[m, n] > 0.0)"


def test_what_no_result_needs_is_left_out():
    assert of("a = exp(x)\nb = sum[n](a)\nreturn x + 1") == ["return f32[m n] x[m, n] + 1.0"]


# Gathers


def test_reads_stay_inside_and_guards_become_conditions():
    assert of("return sum[m](x[i, n])", 'x: "k n", i: "i32[m]"') == [
        "sum.1: f32[n] = sum[m](x[clip(i[m], 0, size(k) - 1), n]) "
        "if (i[m] >= 0) & (i[m] < size(k))",
        "return f32[n] sum.1",
    ]


def test_an_index_is_never_negative():
    assert of("return fill(x[m], 0)", 'x: "n", y: "m"') == [
        "return f32[m] where(m < size(n), x[minimum(m, size(n) - 1)], 0.0)"
    ]


def test_a_gather_of_a_gather():
    found = of("return fill(x[i[j]], 0)", 'x: "n", i: "i32[k]", j: "i32[m]"')
    inner = "i[clip(j[m], 0, size(k) - 1)]"
    assert found == [
        f"return f32[m] where((j[m] >= 0) & (j[m] < size(k)) & ({inner} >= 0) & "
        f"({inner} < size(n)), x[clip({inner}, 0, size(n) - 1)], 0.0)"
    ]


def test_a_ragged_result_keeps_its_condition():
    normal = normalise(program('def f(x: "(t g=4)") -> "(t g)":\n    return x * 2'))
    (result,) = normal.results
    assert to_text(result.value) == ("x[t, minimum(g, size((t g)) - t * size(g) - 1)] * 2.0")
    assert result.condition is not None
    assert to_text(result.condition) == "t * size(g) + g < size((t g))"


# Arg-reductions (decision 7 of the algebra)


def test_topk_of_a_softmax_selects_on_the_logits():
    text = """
def route(x: "b e"):
    p = exp(x - max[e](x))
    p = p / sum[e](p)
    w, i = topk[e:j](p, 2)
    return w / sum[j](w), i
"""
    assert lines(text) == [
        "max.1: f32[b] = max[e](x[b, e])",
        "p: f32[b e] = exp(x[b, e] - max.1)",
        "sum.1: f32[b] = sum[e](p)",
        "w.key: f32[b j], i: i64[b j] = topk[e:j](x[b, e], 2)",
        "w: f32[b j] = where(i >= 0, exp(w.key - max.1) / sum.1, -inf)",
        "sum.2: f32[b] = sum[j](w)",
        "return f32[b j] w / sum.2",
        "return i64[b j] i",
    ]


INCREASING = ["exp(x)", "x + y", "x - y", "x * 2", "x / 3", "tanh(x)", "sigmoid(x)", "erf(x)",
              "exp2(x)", "x * exp(y)", "x / size(n)", "x ** 3", "x * sigmoid(y)", "x * rsqrt(y)",
              "log(abs(y) + exp(x))", "sqrt(exp(x))", "-(-x)", "-1 / exp(x)", "1 - exp(-x)",
              "x / (sum[n](exp(x)) + 1e-6)", "x * max[n](exp(x))", "exp(x) ** 2",
              "x * (y * y + 1)"]  # fmt: skip
DECREASING = ["-x", "y - x", "exp(-x)", "x * -2", "1 / exp(x)", "2 / sigmoid(x)", "rsqrt(exp(x))",
              "exp(x) ** -1", "x / -exp(y)"]  # fmt: skip
OTHER = ["abs(x)", "x * y", "x / y", "1 / x", "x * x", "x ** 2", "f16(x)", "sin(x)", "floor(x)",
         "maximum(x, 0)", "where(x > 0, x, y)", "log(x)", "sqrt(x)", "x * (n + 1)", "x - z",
         "clip(x, 0, 1)", "x * s", "x * 0", "x ** y", "sign(x)", "round(x)", "cos(x)"]  # fmt: skip
PARAMETERS = 'x: "m n", y: "m", z: "n", s: float'


@pytest.mark.parametrize("expression", INCREASING)
def test_argmax_looks_through_increasing_maps(expression):
    assert "argmax.1: i64[m] = argmax[n](x[m, n])" in of(
        f"return argmax[n]({expression})", PARAMETERS
    )


@pytest.mark.parametrize("expression", DECREASING)
def test_a_decreasing_map_makes_argmax_argmin(expression):
    assert "argmax.1: i64[m] = argmin[n](x[m, n])" in of(
        f"return argmax[n]({expression})", PARAMETERS
    )
    assert "argmin.1: i64[m] = argmax[n](x[m, n])" in of(
        f"return argmin[n]({expression})", PARAMETERS
    )


@pytest.mark.parametrize("expression", OTHER)
def test_other_maps_are_kept(expression):
    (found,) = [
        line for line in of(f"return argmax[n]({expression})", PARAMETERS) if "argm" in line
    ][:1]
    assert "argmax[n](x[m, n])" not in found
    assert "argmin" not in found


def test_topk_of_a_decreasing_map_selects_on_the_negative():
    found = of("v, i = topk[n:j](1 - x, 2)\nreturn v, i")
    assert found[:2] == [
        "v.key: f32[m j], i: i64[m j] = topk[n:j](-x[m, n], 2)",
        "v: f32[m j] = where(i >= 0, 1.0 - -v.key, -inf)",
    ]


def test_topk_of_a_negative_is_kept():
    assert of("v, i = topk[n:j](-x, 2)\nreturn v, i")[0] == (
        "v: f32[m j], i: i64[m j] = topk[n:j](-x[m, n], 2)"
    )
    found = of("v, i = topk[n:j](exp(-x), 2)\nreturn v, i")
    assert found[0].endswith("= topk[n:j](-x[m, n], 2)")
    assert found[1] == "v: f32[m j] = where(i >= 0, exp(v.key), -inf)"


def test_a_key_has_all_axes_of_the_operand():
    assert of("return argmax[n](z + y)", 'z: "n", y: "m"')[0] == (
        "argmax.1: i64[m] = argmax[n](z[n] + y[m])"
    )


def test_maps_of_integers_are_kept():
    assert "argmax[n](i[n] * 2)" in of("return argmax[n](i * 2)", 'i: "i32[n]"')[0]


def test_a_definition_between_is_looked_through():
    found = of("a = exp(x)\nb = a * 2\nreturn argmax[n](b)")
    assert found == [
        "argmax.1: i64[m] = argmax[n](x[m, n])",
        "return i64[m] argmax.1",
    ]


def test_a_mask_of_the_operand_stays():
    found = of("return argmax[n](exp(where(x > 0, x)))")
    assert found[0] == "argmax.1: i64[m] = argmax[n](x[m, n]) if x[m, n] > 0.0"


@pytest.mark.parametrize("expression", [*INCREASING, *DECREASING])
def test_looking_through_maps_changes_no_index(expression):
    kernel = program(
        f"def f({PARAMETERS}):\n    v, i = topk[n:j]({expression}, 3)\n"
        f"    return v, i, argmax[n]({expression}), argmin[n]({expression})"
    )
    rng = np.random.default_rng(7)
    arrays: dict[str, Any] = {
        "x": rng.permutation(40).reshape(5, 8) / 16 - 1,
        "y": rng.uniform(0.5, 1.5, 5),
        "z": rng.normal(size=8),
        "s": 0.5,
    }
    for before, after in zip(
        interpret(kernel, arrays), interpret(normalise(kernel), arrays), strict=True
    ):
        np.testing.assert_allclose(before, after, rtol=1e-6)


# Laws


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_the_corpus_means_the_same(name):
    kernel = program_of(CORPUS[name])
    normal = normalise(kernel)
    verify(normal, "normalised")
    assert normalise(normal) == normal
    arrays: Any = CORPUS[name].inputs(np.random.default_rng(3))
    for before, after in zip(interpret(kernel, arrays), interpret(normal, arrays), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-6)


ATOMS = st.sampled_from(["x", "y", "z", "m", "0.5", "s", "x[m, k % size(n)]", "z[i]", "x[i, n]"])
MASKS = st.sampled_from(["n <= m", "x > 0", "z > y", "i < 3", "s > 0", "i[m] > 1", "z[i] > 0"])


def _compound(parts):
    pairs = st.tuples(parts, parts)
    return st.one_of(
        st.tuples(MASKS, parts).map(lambda t: f"where({t[0]}, {t[1]})"),
        st.tuples(MASKS, parts, parts).map(lambda t: f"where({t[0]}, {t[1]}, {t[2]})"),
        pairs.map(lambda t: f"fill(where(s < 2, {t[0]}), {t[1]})"),
        pairs.map(lambda t: f"({t[0]} + {t[1]})"),
        pairs.map(lambda t: f"({t[0]} * {t[1]})"),
        pairs.map(lambda t: f"maximum({t[0]}, {t[1]})"),
        parts.map(lambda t: f"tanh({t})"),
        parts.map(lambda t: f"(sum[n]({t} + 0 * n) + 1)"),
        parts.map(lambda t: f"max[m]({t} + 0 * m)"),
        parts.map(lambda t: f"mean[n, m]({t} + 0 * (n + m))"),
        parts.map(lambda t: f"where({t} > 0, {t}, 1)"),
        parts.map(lambda t: f"where(x[i, n] > {t}, {t})"),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(ATOMS, _compound, max_leaves=6),
    st.recursive(ATOMS, _compound, max_leaves=6),
    st.integers(0, 3),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_masked_kernels_mean_the_same(first, second, rows, columns, random):
    text = f"""
def f(x: "m n", y: "m", z: "n", i: "i32[m]", s: float, w: "k"):
    a = {first}
    b = {second}
    c = where(b > a, a + b)
    return sum[n](c + 0 * n + 0 * m), fill(c, 2), count[m](where(a > 0, b > 1) & (m >= 0))
"""
    kernel = program(text)
    normal = normalise(kernel)
    verify(normal, "normalised")
    rng = np.random.default_rng(random.randrange(2**32))
    shapes = {"x": (rows, columns), "y": (rows,), "z": (columns,), "w": (2,)}
    arrays: dict[str, Any] = {
        name: rng.integers(-3, 4, shape) / 2 for name, shape in shapes.items()
    }
    arrays["i"] = rng.integers(-2, columns + 3, rows)
    arrays["s"] = 1.0
    with np.errstate(all="ignore"):
        before, after = interpret(kernel, arrays), interpret(normal, arrays)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


def test_every_array_is_read_by_its_own_rank():
    for kernel in CORPUS.values():
        for param in program_of(kernel).params:
            if isinstance(param, ArrayParam):
                assert len(param.axes) == len(set(param.axes))
