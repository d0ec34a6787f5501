"""A user's monoid: elements stay in order, whatever their number, and neighbours go by vectors."""

import re

import numpy as np
import pytest

from redlang.codegen.cpu import emit
from redlang.targets.cpu_compile import llvm_text
from tests.codegen.running import compiled, lowered
from tests.kernels import resolve_text

# The first and the last element that are not 0, and how many there are: it does not commute.
ENDS = """
class Ends:
    def init():
        return 0.0, 0.0, 0.0

    def lift(x):
        return x, x, where(x == 0, 0.0, 1.0)

    def combine(a, b):
        return where(a[0] == 0, b[0], a[0]), where(b[1] == 0, a[1], b[1]), a[2] + b[2]

    def finish(s):
        return s[0] + 1000 * s[1] + 1000000 * s[2]
"""
WELFORD = """
class Welford:
    def init():
        return 0.0, 0.0, 0.0

    def lift(x):
        return 1.0, x, 0.0

    def combine(a, b):
        n = a[0] + b[0]
        d = b[1] - a[1]
        mu = where(n == 0, 0.0, a[1] + d * b[0] / n)
        return n, mu, where(n == 0, 0.0, a[2] + b[2] + d * d * a[0] * b[0] / n)

    def finish(s):
        return s[2] / s[0]
"""


@pytest.mark.parametrize("n", [0, 1, 2, 3, 511, 512, 513, 1025, 2049, 5000])
def test_elements_stay_in_order(n, rng):
    text = 'def f(x: "m n") -> "m":\n    return Ends[n](x)\n'
    program = resolve_text(text, names={"Ends": ENDS})
    x = np.where(rng.random((4, n)) < 0.02, rng.integers(1, 9, (4, n)), 0).astype(np.float32)
    (got,) = compiled(program, {"x": x})({"x": x})
    for row, value in zip(x, got, strict=True):
        shown = row[row != 0]
        ends = (shown[0], shown[-1], len(shown)) if len(shown) else (0, 0, 0)
        assert value == ends[0] + 1000 * ends[1] + 1000000 * ends[2]


def test_a_hidden_element_takes_no_part(rng):
    text = 'def f(x: "m n") -> "m":\n    return Ends[n](where(n % 7 != m, x))\n'
    program = resolve_text(text, names={"Ends": ENDS})
    x = rng.integers(1, 9, (4, 700)).astype(np.float32)
    (got,) = compiled(program, {"x": x})({"x": x})
    for m, (row, value) in enumerate(zip(x, got, strict=True)):
        shown = row[np.arange(700) % 7 != m]
        assert value == shown[0] + 1000 * shown[-1] + 1000000 * len(shown)


@pytest.mark.parametrize("axis", ["m", "n"])
def test_a_variance_keeps_its_digits(axis, rng):
    left = "n" if axis == "m" else "m"
    text = f'def f(x: "m n") -> "{left}":\n    return Welford[{axis}](x)\n'
    program = resolve_text(text, names={"Welford": WELFORD})
    x = (rng.standard_normal((130, 1300)) + 1000).astype(np.float32)
    (got,) = compiled(program, {"x": x})({"x": x})
    exact = x.astype(np.float64).var("mn".index(axis))
    np.testing.assert_allclose(got, exact, rtol=1e-4)


def test_neighbours_are_combined_by_vectors():
    text = 'def f(x: "m n") -> "m":\n    return Welford[n](x)\n'
    program = resolve_text(text, names={"Welford": WELFORD})
    made = emit(lowered(program, {"x": np.zeros((512, 4096), np.float32)})[0])
    assert re.search(r"fdiv <\d+ x float>", llvm_text(made.text, made.entries[0]))
