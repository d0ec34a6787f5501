"""What leaves a reduction and is not finite: a NaN of the text never becomes a number."""

import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.normalise import normalise
from tests.algebra.programs import fused, kernel, oracle, program_of

INF = np.inf


def both(arrays, parameters, *lines):
    """Return the last results of a program, unfused and in one sweep."""
    program = program_of(kernel(parameters, *lines))
    fusion = fuse(normalise(program))
    assert len(fusion.sweeps[0].stages) > 1
    with np.errstate(all="ignore"):
        return oracle(program, arrays)[-1], fused(fusion, arrays, tile=2)[-1]


@pytest.mark.parametrize("last", ["sum[n](y * s)", "sum[n]((y + 1) * s)", "max[n](y * s)"])
def test_zeros_times_an_infinite_factor_are_nan(last):
    x = np.array([[INF, 1.0, 2.0]])
    y = np.array([[3.0, 0.0, -1.0]])
    text = ("s = sum[n](abs(x))", f"r = {last}", "return s, tanh(r)")
    if last.startswith("max"):
        y = np.array([[3.0, 0.0, 1.0]])
    right, found = both({"x": x, "y": y}, 'x: "m n", y: "m n"', *text)
    assert np.isnan(right).all()
    assert np.isnan(found).all()


def test_a_division_by_zero_is_nan_where_an_element_is_zero():
    arrays = {"x": np.zeros((1, 3)), "y": np.array([[1.0, 0.0, 2.0]])}
    text = ("s = sum[n](x)", "r = sum[n](y / s)", "return s, 1 / (1 + abs(r))")
    right, found = both(arrays, 'x: "m n", y: "m n"', *text)
    assert np.isnan(right).all()
    assert np.isnan(found).all()


def test_differences_from_an_infinite_mean_cancel_to_nan():
    arrays = {"x": np.array([[INF, 1.0]]), "y": np.zeros((1, 2)), "w": np.array([[1.0, -3.0]])}
    text = ("u = mean[n](y) + sum[n](x)", "r = sum[n](w * (y - u))", "return u, tanh(r)")
    right, found = both(arrays, 'x: "m n", y: "m n", w: "m n"', *text)
    assert np.isnan(right).all()
    assert np.isnan(found).all()


def test_exponentials_beyond_their_range_cancel_to_nan():
    arrays = {"x": np.zeros((1, 2)), "y": np.full((1, 2), -INF), "v": np.array([[1.0, -3.0]])}
    text = ("t = max[n](y)", "r = sum[n](exp(x - t) * v)", "return t, tanh(r)")
    right, found = both(arrays, 'x: "m n", y: "m n", v: "m n"', *text)
    assert np.isnan(right).all()
    assert np.isnan(found).all()


def test_terms_of_one_sign_stay_infinite():
    arrays = {"x": np.array([[INF, 1.0]]), "y": np.array([[1.0, -2.0]])}
    text = ("s = sum[n](abs(x))", "r = sum[n](exp(y) * s)", "return s, 1 / r")
    right, found = both(arrays, 'x: "m n", y: "m n"', *text)
    assert right.tolist() == found.tolist() == [0.0]
    text = ("u = mean[n](x)", "r = sum[n]((y - u) ** 2)", "return u, 1 / r")
    right, found = both(arrays, 'x: "m n", y: "m n"', *text)
    assert right.tolist() == found.tolist() == [0.0]


def test_integers_wrap_before_they_become_floating():
    # Over nothing the maximum is -2**63, and 2 + 2**63 is -2**63 + 2.
    program = program_of(
        kernel(
            'x: "i64[m n]", c: "bool[m n]", w: "m n"',
            "t = max[n](where(c, x))",
            "big = sum[n](w * maximum(x * t, 0))",
            "return sum[n]((abs(x) - t) * w), sum[n](w * abs(x * t)), big",
        )
    )
    x = np.array([[2, -3]])
    w = np.array([[1.0, 2.0]])
    for c in (False, True):
        arrays = {"x": x, "c": np.full((1, 2), c), "w": w}
        for tile in (1, 2):
            found = fused(fuse(program), arrays, tile=tile)
            assert [r.item() for r in found] == [r.item() for r in oracle(program, arrays)]
    # What f32 cannot hold is subtracted before it is rounded.
    x = np.array([[2**30 + 1, 2**30]])
    arrays = {"x": x, "c": np.ones((1, 2), bool), "w": np.ones((1, 2), np.float32)}
    found = fused(fuse(program), arrays, precision="declared")[0]
    right = oracle(program, arrays)[0]
    np.testing.assert_allclose(found, right)
