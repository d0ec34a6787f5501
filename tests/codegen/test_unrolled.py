"""Short axes of literal extent: their loops are written out, each index in variables of its own."""

import numpy as np
import pytest

from redlang.codegen.cpu import emit
from redlang.ir.interpret import interpret
from tests.codegen.running import compiled, lowered
from tests.kernels import resolve_text

INERTIA = """
def inertia(w: "b n", p: "b n c=3") -> "b":
    centre = sum[n](w * p) / sum[n](w)
    return sum[n](w * sum[c]((p - centre) ** 2))
"""
TEXTS = {
    "inertia": INERTIA,
    "kinds": """
def kinds(w: "b n", p: "b n c=3") -> ("b c", "b", "b", "b c", "b c", "b", "b n c"):
    mu = mean[n](p)
    length = sum[c](p * p)
    grown = prod[n](1 + 0.01 * p)
    return mu, sum[n, c](p), argmax[n](length), grown, argmax[n](p), max[n, c](p * w), p - mu
""",
    "nearest": """
def nearest(w: "b n", p: "b n c=3") -> ("b n", "b n"):
    return argmax[c](p), max[c](p * w)
""",
    "softmax": """
def softmax(w: "b n", p: "b n c=3") -> "b n c":
    e = exp(p - max[c](p)) * w
    return e / sum[c](e)
""",
    "planes": """
def planes(w: "b n", p: "b n c=3") -> ("b c", "c"):
    return sum[n](p * where(n % 2 == c % 2, w, 0)), sum[b, n](p)
""",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("n", [0, 1, 5, 700, 9000])
def test_written_out_loops_compute_the_same(name, n, rng):
    program = resolve_text(TEXTS[name])
    given = {
        "w": rng.random((2, n)).astype(np.float32),
        "p": rng.standard_normal((2, n, 3)).astype(np.float32),
    }
    if n > 3 and name != "inertia":
        given["p"][0, 3, 1] = np.nan
    expected = interpret(program, given, store=False)
    for one, other in zip(compiled(program, given)(given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3)


def test_states_are_variables():
    given = {"w": np.zeros((8, 90000), np.float32), "p": np.zeros((8, 90000, 3), np.float32)}
    made = emit(lowered(resolve_text(INERTIA), given)[0])
    assert made.buffers[0] == ()
    assert "for c" not in made.text


def test_sums_at_each_index_keep_their_digits():
    program = resolve_text('def total(p: "n c=3") -> "c":\n    return sum[n](p)\n')
    p = np.full((1 << 20, 3), 0.1, np.float32)
    (got,) = compiled(program, {"p": p})({"p": p})
    exact = p.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(got, exact, rtol=(64 + 20) * float(np.finfo(np.float32).eps))


def test_long_or_cut_axes_keep_their_loops():
    text = 'def f(p: "n c=300") -> "n":\n    return sum[c](p)\n'
    made = emit(lowered(resolve_text(text), {"p": np.zeros((50, 300), np.float32)})[0])
    assert "for c" in made.text
