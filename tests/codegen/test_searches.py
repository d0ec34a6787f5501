"""argmax, argmin and topk: the first of the best, found without looking at every element twice."""

import re

import numpy as np
import pytest

from redlang.codegen.cpu import emit
from redlang.ir import numerics
from redlang.ir.types import DTYPES
from redlang.targets.cpu_compile import llvm_text
from tests.codegen.running import compiled, lowered
from tests.kernels import resolve_text

ROWS = """
def rows(x: "m n") -> ("m", "m"):
    return argmax[n](x), argmin[n](x)
"""
COLUMNS = """
def columns(x: "m n") -> ("n", "n"):
    return argmax[m](x), argmin[m](x)
"""
HIDDEN = """
def hidden(x: "m n") -> "m":
    return argmax[n](where(n % 3 != m % 3, x))
"""
BEST = """
def best(x: "m n") -> "m 5":
    _, places = topk[n](x, 5)
    return places
"""


def inputs(kind, rng, m=4, n=2200):
    """Return rows with what makes a search err: ties, zeros of both signs, NaN, nothing finite."""
    x = rng.standard_normal((m, n))
    match kind:
        case "ties":
            x = np.round(x)
        case "zeros":
            x = np.where(rng.random((m, n)) < 0.5, -0.0, 0.0)
        case "nan":
            x[:, rng.integers(1, n)] = x[:, n - 1] = np.nan
        case "infinite":
            x[:] = -np.inf
            x[1] = np.inf
        case "rising":
            x = np.broadcast_to(np.arange(n), (m, n))
    return {"x": np.ascontiguousarray(x, np.float32)}


kinds = pytest.mark.parametrize("kind", ["any", "ties", "zeros", "nan", "infinite", "rising"])


@kinds
def test_the_first_of_the_best_wins(kind, rng):
    given = inputs(kind, rng)
    x = given["x"]
    got = compiled(resolve_text(ROWS), given)(given)
    np.testing.assert_array_equal(got, [x.argmax(1), x.argmin(1)])
    given["x"] = x = np.ascontiguousarray(x[:, :300].T)
    got = compiled(resolve_text(COLUMNS), given)(given)
    np.testing.assert_array_equal(got, [x.argmax(0), x.argmin(0)])


@kinds
def test_what_is_hidden_is_never_found(kind, rng):
    given = inputs(kind, rng)
    x = given["x"]
    m, n = np.indices(x.shape)
    shown = n % 3 != m % 3
    expected = [np.flatnonzero(s)[row[s].argmax()] for row, s in zip(x, shown, strict=True)]
    (got,) = compiled(resolve_text(HIDDEN), given)(given)
    np.testing.assert_array_equal(got, expected)


@kinds
def test_lists_are_in_order(kind, rng):
    given = inputs(kind, rng)
    (got,) = compiled(resolve_text(BEST), given)(given)
    # NaN ranks first, equals rank in the order of their places.
    ranks = np.where(np.isnan(given["x"]), 2e38, np.clip(given["x"], -1e38, 1e38))
    np.testing.assert_array_equal(got, np.argsort(-ranks, axis=1, kind="stable")[:, :5])


@pytest.mark.parametrize("dtype", ["i8", "u8", "i64", "bool", "f16"])
def test_places_of_other_types(dtype, rng):
    x = rng.integers(0, 2 if dtype == "bool" else 100, (3, 700))
    given = {"x": numerics.to_storage(x.astype(np.float64), DTYPES[dtype])}
    got = compiled(resolve_text(ROWS, {"x": DTYPES[dtype]}), given)(given)
    np.testing.assert_array_equal(got, [x.argmax(1), x.argmin(1)])


def test_a_search_goes_on_from_tile_to_tile_by_vectors():
    given = {"x": np.zeros((64, 32000), np.float32)}
    loops, _ = lowered(resolve_text(ROWS), given)
    made = emit(loops)
    assert "argmax_1_argmax_tile" not in made.text
    optimised = llvm_text(made.text, made.entries[0])
    assert re.search(r"fcmp (ugt|ole) <\d+ x float>", optimised)
    assert re.search(r"fcmp (ult|oge) <\d+ x float>", optimised)


def test_places_of_columns_are_chosen_by_vectors():
    given = {"x": np.zeros((2000, 640), np.float32)}
    loops, _ = lowered(resolve_text(COLUMNS), given)
    made = emit(loops)
    assert re.search(r"select <\d+ x i1>.*<\d+ x i64>", llvm_text(made.text, made.entries[0]))
