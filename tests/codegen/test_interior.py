"""Reads beside the current element: right at every edge, without tests away from the edges."""

import re

import numpy as np
import pytest

from redlang.codegen.cpu import emit
from redlang.codegen.interior import facts_of, settled
from redlang.ir.build import Builder
from redlang.ir.interpret import interpret
from redlang.targets.cpu_compile import llvm_text
from tests.codegen.running import compiled, lowered
from tests.kernels import resolve_text

TEXTS = {
    "shift": """
def f(x: "m n") -> "m n":
    return fill(x[m, n - 3], 7)
""",
    "ahead": """
def f(x: "m n") -> "m n":
    return fill(x[m, n + 400], 7) + x
""",
    "difference": """
def f(x: "m n") -> "m n":
    return fill(x[m, n + 1] - 2 * x + x[m, n - 1], 0) * 3
""",
    "cross": """
def f(x: "m n") -> "m n":
    return fill(x[m, n + 1], 0) + fill(x[m, n - 1], 0) + fill(x[m + 1, n], 0) + fill(x[m - 1, n], 0)
""",
    "taps": """
def f(x: "m n", w: "l") -> "m n":
    return sum[l](x[m, n + l - size(l) // 2] * w)
""",
    "convolution": """
def f(x: "m n", w: "l") -> "m n":
    return sum[l](x[m, n - l] * w[l])
""",
    "dilated": """
def f(x: "m n", w: "l") -> "m n":
    return sum[l](x[m, n + 2 * l - 5] * w[l])
""",
    "window": """
def f(x: "m n", w: "l") -> ("m n", "m n"):
    return max[l](x[m, n + l - 2] + 0 * w[l]), mean[l](x[m, n + l - 2] + 0 * w[l])
""",
    "mirror": """
def f(x: "m n") -> "m n":
    return fill(x[m, size(n) - n - 3], 1)
""",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("shape", [(3, 300), (5, 1), (1, 4), (2, 0), (1, 700)])
def test_edges_are_right(name, shape, rng):
    program = resolve_text(TEXTS[name])
    given = {"x": rng.standard_normal(shape).astype(np.float32)}
    if shape[1] > 2:
        given["x"][0, -1] = np.nan
    if 'w: "l"' in TEXTS[name]:
        given["w"] = rng.standard_normal(7).astype(np.float32)
    expected = interpret(program, given)
    for one, other in zip(compiled(program, given)(given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["shift", "taps", "convolution", "cross"])
def test_away_from_edges_adjacent_elements_are_read_by_vectors(name):
    given = {"x": np.zeros((64, 4096), np.float32), "w": np.zeros(5, np.float32)}
    program = resolve_text(TEXTS[name])
    loops, _ = lowered(program, {p.name: given[p.name] for p in program.params})
    made = emit(loops)
    assert re.search(r"load <\d+ x float>", llvm_text(made.text, made.entries[0]))


def test_rows_that_are_looked_up_are_added_up_side_by_side():
    text = """
def f(table: "v d", ids: "i64[b t]") -> "b d":
    return mean[t](table[ids, d])
"""
    given = {"table": np.zeros((1000, 128), np.float32), "ids": np.zeros((64, 50), np.int64)}
    made = emit(lowered(resolve_text(text), given)[0])
    _, sums = made.text.split("table = pointer")
    rows = sums.index("for t ")
    assert rows < sums.index("for d", rows) < sums.index("sum_add", rows)


def test_facts_settle_tests_and_clips():
    build = Builder(("m", "n"))
    place = build.sub(build.index("n"), 2)
    last = build.sub(build.size("n"), 1)
    reached = build.apply("ge", place, 0)
    below = build.apply("lt", place, build.size("n"))
    clipped = build.apply("clip", place, 0, last)
    chosen = build.where(build.apply("and", reached, below), clipped, 0)
    assert settled(chosen, facts_of([reached, below])) == place
    assert settled(clipped, facts_of([reached])) == clipped
    assert settled(build.apply("minimum", place, last), facts_of([below])) == place
    assert settled(reached, facts_of([below])) == reached
