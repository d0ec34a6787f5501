from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from redlang.errors import DTypeError
from redlang.ir.build import Builder
from redlang.ir.interpret import interpret
from redlang.ir.monotony import (
    NEGATIVE,
    NONNEGATIVE,
    POSITIVE,
    UNKNOWN,
    ZERO,
    sign,
    step,
)
from redlang.ir.program import Expr, Reduce
from redlang.ir.types import F16, F32, F64
from tests.frontend.resolving import program

B = Builder(("m", "n"))
PARAMETERS = 'x: "m n", y: "m", s: float, c: "bool[m]", u: "u64[m]", t: "i64[m n]"'


def signs(expression):
    """Return the sign of an expression, through the definitions of its kernel."""
    kernel = program(f"def f({PARAMETERS}):\n    return {expression}")
    values = {name: d.value for d in kernel.definitions for name in d.names}
    return sign(kernel.results[0].value, values.get)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("2", POSITIVE),
        ("0 * 1.0", ZERO),
        ("-3", NEGATIVE),
        ("n", NONNEGATIVE),
        ("size(n)", POSITIVE),
        ("s", UNKNOWN),
        ("x", UNKNOWN),
        ("u", NONNEGATIVE),
        ("c + 0", NONNEGATIVE),
        ("exp(x)", POSITIVE),
        ("f16(exp(x))", NONNEGATIVE),
        ("abs(x) + 1", POSITIVE),
        ("abs(x) + abs(y)", NONNEGATIVE),
        ("-exp(x) - n", NEGATIVE),
        ("x * x", NONNEGATIVE),
        ("exp(x) * exp(x)", POSITIVE),
        ("x ** 2", NONNEGATIVE),
        ("exp(x) ** 2", POSITIVE),
        ("exp(x) ** y", POSITIVE),
        ("abs(x) ** 3", NONNEGATIVE),
        ("x ** 3", UNKNOWN),
        ("(-exp(x)) ** 2", POSITIVE),
        ("x ** y", UNKNOWN),
        ("1 / exp(x)", POSITIVE),
        ("maximum(x, 1)", POSITIVE),
        ("minimum(exp(x), 1)", POSITIVE),
        ("minimum(x, -1)", NEGATIVE),
        ("clip(x, 1, 2)", POSITIVE),
        ("clip(x, -1, 2)", UNKNOWN),
        ("where(c, 1, exp(x))", POSITIVE),
        ("tanh(exp(x))", POSITIVE),
        ("sign(abs(x))", NONNEGATIVE),
        ("sum[n](exp(x))", POSITIVE),
        ("sum[n](x)", UNKNOWN),
        ("prod[n](exp(x))", POSITIVE),
        ("prod[n](-exp(x))", UNKNOWN),
        ("max[n](abs(x))", NONNEGATIVE),
        ("count[n](x > 0)", NONNEGATIVE),
        ("argmax[n](x)", UNKNOWN),
        ("n // 2", NONNEGATIVE),
        ("n % 3", NONNEGATIVE),
        ("sqrt(abs(y))", NONNEGATIVE),
        ("sin(x)", UNKNOWN),
        ("fill(where(c, exp(x)), 1)", POSITIVE),
        # Integers wrap: the magnitude of the smallest is negative.
        ("abs(t)", UNKNOWN),
        ("t * t", UNKNOWN),
        ("t ** 2", UNKNOWN),
        ("sum[n](minimum(1, clip(t, 1, 2)))", UNKNOWN),
        ("clip(t, 1, 2)", POSITIVE),
        ("max[n](clip(t, 1, 2))", NEGATIVE | POSITIVE),
        ("min[n](clip(t, -2, -1))", NEGATIVE | POSITIVE),
        ("n * n + size(m)", POSITIVE),
    ],
)
def test_signs(expression, expected):
    assert signs(expression) == expected


LEAVES = st.sampled_from(["x", "y", "n", "2", "0.5", "-1.5", "size(m)", "u", "s"])

UNARY = st.sampled_from(["exp", "abs", "tanh", "-", "sigmoid", "sqrt", "sign", "f16"])
BINARY = st.sampled_from(["+", "-", "*", "/", "**"])


def _grown(parts):
    pairs = st.tuples(parts, parts)
    return st.one_of(
        st.tuples(UNARY, parts).map(lambda two: f"{two[0]}({two[1]})"),
        st.tuples(parts, BINARY, parts).map(lambda three: f"({' '.join(three)})"),
        pairs.map(lambda two: f"maximum({two[0]}, {two[1]})"),
        pairs.map(lambda two: f"where(c, {two[0]}, {two[1]})"),
        parts.map(lambda part: f"sum[n]({part} + 0 * n)"),
        parts.map(lambda part: f"({part}) ** 2"),
    )


@settings(max_examples=80, deadline=None)
@given(st.recursive(LEAVES, _grown, max_leaves=5), st.integers(0, 2**32 - 1))
def test_a_sign_holds_for_every_element(expression, seed):
    try:
        kernel = program(f"def f({PARAMETERS}):\n    return {expression}")
    except DTypeError as error:
        # A choice between a u64 and a signed integer, or 2 squared too often: neither has a type.
        if not any(text in str(error) for text in ("no type holds both", "i64 does not hold")):
            raise
        reject()
    values = {name: d.value for d in kernel.definitions for name in d.names}
    bits = sign(kernel.results[0].value, values.get)
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "x": rng.integers(-3, 4, (3, 4)) / 2,
        "y": rng.integers(-3, 4, 3) / 2,
        "s": 1.5,
        "c": rng.integers(0, 2, 3) > 0,
        "u": rng.integers(0, 4, 3),
        "t": rng.integers(-3, 4, (3, 4)),
    }
    with np.errstate(all="ignore"):
        (result,) = interpret(kernel, arrays, store=False)
    for element in result[np.isfinite(result)].flat:
        # An exponential underflows to a zero that the real numbers do not have.
        allowed = bits | ZERO
        found = NEGATIVE if element < 0 else ZERO if element == 0 else POSITIVE
        assert found & allowed, (expression, element)


def unknown(_: str) -> Expr | Reduce | None:
    return None


def test_a_step_needs_one_varying_argument():
    x, y = (B.load(a, F32, [B.index(i) for i in axes]) for a, axes in (("x", "mn"), ("y", "m")))
    found = step(B.add(y, x), ["n"], unknown)
    assert found is not None
    assert (found.position, found.direction) == (1, 1)
    assert step(B.add(x, x), ["n"], unknown) is None
    assert step(B.add(y, y), ["n"], unknown) is None
    assert step(B.add(x, y), ["m"], unknown) is None


def test_a_widening_is_a_step_and_a_rounding_is_not():
    x = B.load("x", F32, [B.index("m"), B.index("n")])
    widened = step(B.convert(x, F64), ["n"], unknown)
    assert widened is not None
    assert widened.direction == 1
    assert step(B.cast(x, F16), ["n"], unknown) is None
    assert step(B.convert(B.index("n"), F32), ["n"], unknown) is None
