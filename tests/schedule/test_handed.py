"""What kernels hand on: the function that all readers take of a workspace, and nothing else."""

import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.interpret import bind, interpret
from redlang.ir.loops import Store
from redlang.ir.normalise import normalise
from redlang.ir.program import Apply, Cast, Literal, Ref
from redlang.ir.run_loops import run_loops
from redlang.schedule.choose import choose_plan
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests, wide_axes
from tests.kernels import resolve_text

SHAPES = {"x": (20, 600), "y": (30, 600)}


def lowered(body):
    fusion = fuse(normalise(resolve_text(f'def f(x: "m d", y: "n d") -> "m":\n    {body}')))
    given = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    extents = bind(fusion.program, given).extents
    nests = find_nests(fusion.program, fusion.sweeps, wide_axes(extents))
    choice = choose_plan(fusion.program, nests, nests, extents)
    return lower(fusion.program, choice.nests, choice.plan)


def handed(loops):
    (space,) = loops.workspaces
    (store,) = (
        s for k in loops.kernels for s in k.body if isinstance(s, Store) and s.target == space.name
    )
    return store.value


def test_a_function_that_all_readers_take_is_stored():
    loops = lowered("return sum[n](sum[d](x * y) * rsqrt(sum[d](y * y)))")
    value = handed(loops)
    assert isinstance(value, Apply)
    assert value.op == "rsqrt"
    rng = np.random.default_rng(1)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    (found,) = run_loops(loops, bind(loops.program, given), {})
    (expected,) = interpret(loops.program, given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("norm", "ops"),
    [
        ("* rsqrt(sum[d](y * y) / size(d) + 1e-3)", ["rsqrt", "add", "div"]),
        ("* (1 / maximum(sqrt(sum[d](y * y)), 1e-3))", ["div", "maximum", "sqrt"]),
        ("/ maximum(sqrt(sum[d](y * y)), 1e-3)", ["div", "maximum", "sqrt"]),
        ("* sqrt(sqrt(sum[d](y * y)))", ["sqrt", "sqrt"]),
    ],
)
def test_functions_with_constants_are_stored_one_in_the_other(norm, ops):
    loops = lowered(f"return sum[n](sum[d](x * y) {norm})")
    value = handed(loops)
    for op in ops:
        assert isinstance(value, Apply)
        assert value.op == op
        value = next(a for a in value.arguments if not isinstance(a, Literal | Cast))
    rng = np.random.default_rng(1)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    (found,) = run_loops(loops, bind(loops.program, given), {})
    (expected,) = interpret(loops.program, given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "body",
    [
        "return sum[n](sum[d](x * y) * rsqrt(sum[d](y * y)) + sum[d](y * y))",
        "return sum[n](sum[d](x * y) * rsqrt(sum[d](y * y)) + sqrt(sum[d](y * y)))",
        "return sum[n](sum[d](x * y) * -sum[d](y * y))",
    ],
)
def test_what_is_read_in_several_ways_is_stored_as_it_is(body):
    assert isinstance(handed(lowered(body)), Ref)
