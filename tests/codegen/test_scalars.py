"""Every operator of the language has a spelling that computes what the interpreter does."""

import numpy as np
import pytest

from redlang.codegen.scalars import number
from redlang.ir import numerics
from redlang.ir.build import Builder
from redlang.ir.interpret import interpret
from redlang.ir.loops import Kernel, Loops, Store
from redlang.ir.operators import OPERATORS
from redlang.ir.program import ArrayParam, Axis, Dim, Program, Result
from redlang.ir.types import BOOL, DTYPES, F32, F64, I64, U64
from tests.codegen.running import Compiled

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
B = Builder(("n",))
N = B.index("n")
SAMPLES = {
    "f32": [0.0, -0.0, 1.0, -1.5, 2.5, 7.0, -7.0, 0.3, 30.0, np.inf, -np.inf, np.nan, 1e-40],
    "f64": [0.0, -0.0, 1.0, -1.5, 2.5, 7.0, -7.0, 0.3, 30.0, np.inf, -np.inf, np.nan, 1e-310],
    "i64": [0, 1, -1, 7, -7, 3, 2**40, -(2**63), 2**63 - 1, 16, 5, -16, 100],
    "u64": [0, 1, 2, 7, 2**40, 2**63, 2**64 - 1, 16, 5, 3, 9, 100, 6],
    "bool": [0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1],
}


def pairs(dtype):
    """Return all pairs of samples as two arrays."""
    values = np.array(SAMPLES[dtype]).astype(numerics.storage_dtype(DTYPES[dtype]))
    return tuple(part.ravel() for part in np.meshgrid(values, values))


def expressions(dtype):
    """Return an expression for each operator that takes values of this type."""
    x, y = (B.load(name, DTYPES[dtype], [N]) for name in "xy")
    floating = dtype in ("f32", "f64")
    for name, operator in OPERATORS.items():
        if operator.rule == "logic" and floating:
            continue
        if dtype == "bool" and operator.rule not in ("logic", "compare", "where", "test"):
            continue
        if dtype == "bool" and name in ("lt", "le", "gt", "ge"):
            continue
        match name:
            case "where":
                yield name, B.where(B.apply("ne", x, y), x, y)
            case "clip":
                yield name, B.apply(name, x, y, B.mul(y, 2))
            case "ldexp":
                yield name, B.apply(name, x, B.sub(N, 80))
            case "pow":
                for exponent in (
                    (0, 1, 2, 3, 4, 7) if not floating else (2, -2, 3, 0.75, 5, 0.5, 1.5, -1.5)
                ):
                    yield f"pow{exponent}", B.apply(name, x, exponent)
                if floating:
                    yield name, B.apply(name, x, y)
            case _:
                yield name, B.apply(name, *(x, y)[: operator.arity])


@pytest.mark.parametrize("dtype", SAMPLES)
def test_every_operator_computes_what_the_interpreter_does(dtype):
    named = list(expressions(dtype))
    results = tuple(Result(e, (Dim(("n",)),), e.type.dtype) for _, e in named)
    params = tuple(ArrayParam(name, (Dim(("n",)),), DTYPES[dtype]) for name in "xy")
    program = Program("all_operators", params, (Axis("n"),), (), results)
    body = tuple(Store(f"result.{i}", e, ("n",)) for i, (_, e) in enumerate(named))
    loops = Loops("all", program, (Kernel("all", (), None, ("n",), body, "map"),), ())
    inputs = dict(zip("xy", pairs(dtype), strict=True))
    got = Compiled(loops, {})(inputs)
    expected = interpret(program, inputs, precision="declared")
    for (name, _), one, other in zip(named, got, expected, strict=True):
        if one.dtype.kind == "f":
            # Two units in the last place each, against NumPy's one or so.
            eps = np.finfo(one.dtype)
            np.testing.assert_allclose(
                one, other, 3 * eps.eps, eps.smallest_subnormal, err_msg=name
            )
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("source", ["f32", "f64", "i64", "u64", "bool"])
def test_every_cast_computes_what_the_interpreter_does(source):
    x = B.load("x", DTYPES[source], [N])
    casts = [B.cast(x, dtype) for dtype in DTYPES.values()]
    casts += [B.convert(x, dtype) for dtype in (BOOL, I64, U64, F32, F64)]
    results = tuple(Result(e, (Dim(("n",)),), e.type.dtype) for e in casts)
    params = (ArrayParam("x", (Dim(("n",)),), DTYPES[source]),)
    program = Program("casts", params, (Axis("n"),), (), results)
    body = tuple(Store(f"result.{i}", e, ("n",)) for i, e in enumerate(casts))
    loops = Loops("casts", program, (Kernel("casts", (), None, ("n",), body, "map"),), ())
    inputs = {"x": pairs(source)[0]}
    got = Compiled(loops, {})(inputs)
    for one, other in zip(got, interpret(program, inputs, precision="declared"), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F32, "f32(0.1)"),
        (float("-inf"), F64, "f64(-inf)"),
        (float("nan"), F32, "f32(nan)"),
        (-3, I64, "(-3)"),
        (2**63, I64, f"({-(2**63)})"),
        (-1, U64, f"u64({2**64 - 1})"),
        (1, BOOL, "True"),
    ],
)
def test_numbers_are_written_in_their_type(value, dtype, text):
    assert number(value, dtype) == text
