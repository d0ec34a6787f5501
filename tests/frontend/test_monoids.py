import numpy as np
import pytest

from redlang.ir.interpret import interpret
from redlang.ir.printing import to_text
from tests.frontend.resolving import Outside, body, mistake, mistakes, program

LOGSUMEXP = """
@redlang.monoid
class lse:
    def init():
        return -inf, 0

    def lift(x):
        return x, 1

    def combine(a, b):
        m = maximum(a[0], b[0])
        shift = where(m == -inf, 0, m)
        return m, a[1] * exp(a[0] - shift) + b[1] * exp(b[0] - shift)

    def finish(a):
        m, s = a
        return m + log(s)
"""
GCD = """
@redlang.monoid
class larger:
    def init():
        return -1

    def combine(a, b):
        return maximum(a, b)
"""


def test_a_monoid_is_a_reduction_with_its_own_name():
    lines = to_text(program('def f(x: "m n"):\n    return lse[n](x)', {"lse": Outside(LOGSUMEXP)}))
    assert lines.splitlines()[3:] == [
        "  monoid lse",
        "    init -inf, 0.0",
        "    lift x.0, 1.0",
        "    combine maximum(a.0, b.0), a.1 * exp(a.0 - where(maximum(a.0, b.0) == -inf, 0.0, "
        "maximum(a.0, b.0))) + b.1 * exp(b.0 - where(maximum(a.0, b.0) == -inf, 0.0, "
        "maximum(a.0, b.0)))",
        "    finish a.0 + log(a.1)",
        "  lse.1: f32[m] = lse[n](x[m, n])",
        "  return f32[m] lse.1",
    ]


def test_a_monoid_means_what_its_methods_say():
    kernel = program('def f(x: "m n"):\n    return lse[n](x)', {"lse": Outside(LOGSUMEXP)})
    x = np.random.default_rng(0).normal(size=(3, 7)) * 5
    (result,) = interpret(kernel, {"x": x.astype(np.float32)}, store=False)
    np.testing.assert_allclose(result, np.log(np.exp(x.astype(np.float32)).sum(1)), rtol=1e-6)


def test_lift_and_finish_may_be_left_out():
    lines = body("return larger[n](i)", 'i: "i32[n]"', {"larger": Outside(GCD)})
    assert lines[:6] == [
        "monoid larger",
        "init -1",
        "lift x.0",
        "combine maximum(a.0, b.0)",
        "finish a.0",
        "larger.1: i64[] = larger[n](i[n])",
    ]


def test_a_monoid_is_typed_by_its_elements():
    larger = Outside(GCD)
    assert "larger.1: f64[]" in body("return larger[n](x)", 'x: "f64[n]"', {"larger": larger})[5]
    assert "larger.1: f32[]" in body("return larger[n](x)", 'x: "f16[n]"', {"larger": larger})[5]


def test_a_state_is_widened_by_combine():
    widening = Outside(
        "@redlang.monoid\nclass mid:\n    def init():\n        return 0\n\n"
        "    def combine(a, b):\n        return (a + b) / 2\n"
    )
    lines = body("return mid[n](i)", 'i: "i32[n]"', {"mid": widening})
    assert lines[1:5] == ["init 0.0", "lift float(x.0)", "combine (a.0 + b.0) / 2.0", "finish a.0"]


def test_states_may_be_listed_as_parameters_and_elements_may_be_several():
    recurrence = Outside(
        "@redlang.monoid\nclass affine:\n    def init():\n        return 1, 0\n\n"
        "    def lift(a, b):\n        return a, b\n\n"
        "    def combine(a, b, c, d):\n        return c * a, c * b + d\n\n"
        "    def finish(a, b):\n        return b, a\n"
    )
    lines = body("b, a = affine[n](x, y)\nreturn b", 'x: "n", y: "n"', {"affine": recurrence})
    assert lines[3] == "combine b.0 * a.0, b.0 * a.1 + b.1"
    assert lines[5] == "b: f32[], a: f32[] = affine[n](x[n], y[n])"


def test_a_monoid_may_use_macros_and_numbers_from_outside():
    double = Outside("@redlang.function\ndef double(x):\n    y = x * K\n    return y", K=2)
    scaled = Outside(
        "@redlang.monoid\nclass scaled:\n    def init():\n        return 0\n\n"
        "    def lift(x):\n        return double(x)\n\n"
        "    def combine(a, b):\n        return a + b\n",
        double=double,
    )
    kernel = program('def f(x: "n"):\n    return scaled[n](x)', {"scaled": scaled})
    assert [p.name for p in kernel.params] == ["x", "K"]
    assert "lift x.0 * float(K)" in to_text(kernel)


def monoid(methods):
    return Outside("@redlang.monoid\nclass m:\n" + methods.replace("\n\n", "\n"))


INIT = "    def init():\n        return 0\n"
COMBINE = "    def combine(a, b):\n        return a + b\n"


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        (INIT, "monoid m has no method combine"),
        (COMBINE, "monoid m has no method init"),
        (
            INIT + COMBINE + "    def final(a):\n        return a\n",
            "monoid m has a method final, which means nothing",
        ),
        (
            INIT + "    def combine(a, b):\n        return a, b\n",
            "combine of monoid m gives 2 parts, and init gives 1",
        ),
        (
            INIT + "    def combine(a):\n        return a\n",
            "m.combine has 1 parameter, and 2 values are given",
        ),
        (
            INIT + "    def combine(a, b):\n        return sum[n](a)\n",
            "a monoid's methods reduce nothing",
        ),
        (
            INIT + "    def combine(a, b):\n        return where(a > b, a)\n",
            "m.combine may return something absent",
        ),
        (
            INIT + "    def combine(a, b):\n        return a[1] + b\n",
            "a is no array parameter, and only those take subscripts",
        ),
        (
            "    def init():\n        return 0, 0\n" + COMBINE,
            "lift of monoid m gives 1 part, and init gives 2",
        ),
        (
            "    def init():\n        return 0, 0\n"
            "    def lift(x):\n        return x, x\n"
            "    def combine(a, b):\n        return a + 1, b[1]\n",
            "a has 2 parts",
        ),
    ],
)
def test_mistakes_in_a_monoid(methods, problem):
    found = mistakes('def f(x: "n"):\n    return m[n](x)', {"m": monoid(methods)})
    assert found[0][2] == problem


def test_mistakes_in_each_method_are_reported_once():
    for methods in (
        "    def init():\n        return foo\n" + COMBINE,
        INIT + COMBINE + "    def lift(x):\n        return foo\n",
        INIT + COMBINE + "    def finish(a):\n        return foo\n",
        INIT + "    def combine(a, b):\n        return foo\n",
    ):
        problem, hint = mistake("return m[n](x)", 'x: "n"', {"m": monoid(methods)})
        assert problem.startswith("foo is no parameter")
        assert "is used by m" in hint


def test_a_state_may_be_renamed_and_read_by_part():
    text = """
@redlang.monoid
class pair:
    def init():
        return 0, 0

    def lift(x):
        return x, 1

    def combine(a, b):
        c = a
        return c[0] + b[0], c[1] + b[{part}]
"""
    lines = body("s, n0 = pair[n](x)\nreturn s", 'x: "n"', {"pair": Outside(text.format(part=1))})
    assert lines[3] == "combine a.0 + b.0, a.1 + b.1"
    problem, _ = mistake(
        "s, n0 = pair[n](x)\nreturn s", 'x: "n"', {"pair": Outside(text.format(part=2))}
    )
    assert problem == "b has parts 0 to 1"


def test_a_monoid_does_not_use_another():
    outer = monoid(INIT + "    def combine(a, b):\n        return larger[n](a)\n")
    outer.names["larger"] = Outside(GCD)
    problem, _ = mistake("return m[n](x)", 'x: "n"', {"m": outer})
    assert problem == "a monoid's methods reduce nothing"


def test_a_monoid_reduces_axes_of_its_operands():
    larger = {"larger": Outside(GCD)}
    assert mistake("return larger[n](x)", 'x: "m", y: "n"', larger)[0] == (
        "larger reduces axis n, which its operand does not have (it has m)"
    )
    assert mistake("return larger(x)", 'x: "m"', larger)[0] == (
        "larger does not say over which axis"
    )
