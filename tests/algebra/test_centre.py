"""Rests of means: where a mean is subtracted from its own elements, and only there."""

import numpy as np
import pytest

from redlang.algebra.centre import centred
from redlang.ir.interpret import interpret
from redlang.ir.printing import to_text
from tests.algebra.programs import kernel, program_of


def rests(parameters, *lines, dtypes=None):
    program, means = centred(program_of(kernel(parameters, *lines), dtypes))
    assert {mean.rest for mean in means} <= {n for d in program.definitions for n in d.names}
    return [mean.rest for mean in means], to_text(program)


WITH_REST = {
    "mean": ('x: "m n"', "return x - mean[n](x)"),
    "mean the other way": ('x: "m n"', "return mean[n](x) - x"),
    "over two axes": ('x: "m n k"', "return x - mean[n, k](x)"),
    "weighted": ('x: "m n", w: "n"', "u = sum[n](w * x) / sum[n](w)", "return x - u"),
    "by names": ('x: "m n"', "y = x * 2", "u = mean[n](y)", "d = y - u", "return d"),
    "under a mask": (
        'x: "m n", c: "bool[m n]"',
        "u = mean[n](where(c, x))",
        "return where(c, x - u, 0)",
    ),
    "inside a reduction": ('x: "m n"', "return sum[n](abs(x - mean[n](x)))"),
}

WITHOUT = {
    "another quantity": ('x: "m n", y: "m n"', "return x - mean[n](y)"),
    "another divisor": ('x: "m n"', "return x - sum[n](x) / (size(n) - 1)"),
    "another axis's size": ('x: "m n"', "return x - sum[n](x) / size(m)"),
    "a maximum": ('x: "m n"', "return x - max[n](x)"),
    "a quotient": ('x: "m n"', "return x / mean[n](x)"),
    "other weights": (
        'x: "m n", w: "n", v: "n"',
        "return x - sum[n](w * x) / sum[n](v)",
    ),
    "weights divided by another sum": (
        'x: "m n", w: "n", v: "n"',
        "return x - sum[n](w / sum[n](v) * x)",
    ),
    "weights divided by some of them": (
        'x: "m n", w: "n"',
        "return x - sum[n](w / sum[n](where(n > 0, w)) * x)",
    ),
    "a mask on one of both": (
        'x: "m n", c: "bool[m n]"',
        "return x - sum[n](fill(where(c, x), 1)) / count[n](c)",
    ),
}


@pytest.mark.parametrize("name", WITH_REST)
def test_a_mean_that_is_subtracted_has_a_rest(name):
    dtypes = {"c": "bool"} if "mask" in name else None
    found, text = rests(*WITH_REST[name], dtypes=dtypes)
    assert len(found) == 1
    assert text.count(f"{found[0]} /") == 1


def test_weights_that_are_divided_by_their_sum_need_no_divisor():
    lines = "p = exp(s)", "q = p / sum[n](p)", "u = sum[n](q * x)", "return x - u"
    found, text = rests('s: "m n", x: "m n"', *lines)
    assert len(found) == 1
    assert f"- {found[0]}" in text


def test_squares_of_differences_may_have_a_mean_subtracted(rng):
    lines = "u = mean[n](x)", "v = mean[n]((x - u) ** 2)", "return mean[n](abs((x - u) ** 2 - v))"
    program, means = centred(program_of(kernel('x: "m n"', *lines)))
    (mean,) = means
    assert to_text(program).count(f"{mean.rest} /") == 2
    x = (1e4 + rng.standard_normal((3, 500))).astype(np.float32)
    squares = (x - x.mean(1, keepdims=True, dtype=np.float64)) ** 2
    expected = np.abs(squares - squares.mean(1, keepdims=True)).mean(1)
    (result,) = interpret(program, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=1e-7)


@pytest.mark.parametrize("name", WITHOUT)
def test_nothing_else_has_one(name):
    dtypes = {"c": "bool"} if "mask" in name else None
    found, _ = rests(*WITHOUT[name], dtypes=dtypes)
    assert found == []


def test_f64_and_integers_need_none():
    assert rests('x: "m n"', "return x - mean[n](x)", dtypes={"x": "f64"})[0] == []
    assert rests('x: "m n"', "return x - mean[n](x)", dtypes={"x": "i32"})[0] == []


def test_a_program_without_differences_is_returned_as_it_is():
    program = program_of(kernel('x: "m n"', "return mean[n](x)"))
    assert centred(program)[0] is program
