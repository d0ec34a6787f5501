"""How far a result may be off: by what roundings on the way come to, whatever the inputs show."""

import numpy as np

import redlang
from redlang.testing.rounding import FACTOR, tolerance


@redlang.kernel
def cancelling(x: "n", y: "n") -> "":
    d = x - y
    return sum[n](d - sum[n](d))


@redlang.kernel
def saturated(x: "n") -> "":
    return sum[n](tanh(x))


@redlang.kernel
def exact(x: "n") -> ("", "n"):
    t = max[n](x)
    return t, x - t


def test_a_sum_that_cancels_is_off_by_its_terms():
    (off,) = tolerance(saturated, {"x": np.array([100.0, -100.0, 50.0, -50.0])}, 2.0**-52)
    assert 2.0**-52 < off < 4 * FACTOR * 2.0**-52


def test_what_a_rounding_on_the_way_makes_is_allowed_for():
    # 1 - fl(1 - 1e-4) keeps 1e-4 with an error of a rounding of 1, not of 1e-4.
    arguments = {"x": np.full(2, 1.0, np.float32), "y": np.full(2, 1e-4, np.float32)}
    (off,) = tolerance(cancelling, arguments, 2.0**-23)
    assert off > 2.0**-23


def test_the_true_error_is_within_what_is_allowed_and_not_far_below():
    rng = np.random.default_rng(0)
    x = np.sin(rng.normal(size=4000) * 100)
    (off,) = tolerance(saturated, {"x": x}, 2.0**-23)
    exactly = np.tanh(x).sum()
    naive = np.float32(0)
    for value in np.tanh(x).astype(np.float32):
        naive += value
    assert abs(naive - exactly) < off < 2 * FACTOR * 2.0**-23 * np.abs(np.tanh(x)).sum()


def test_inputs_move_together_wherever_they_are_read():
    x = np.array([1e6, 1e6 - 1.0])
    _, off = tolerance(exact, {"x": x}, 2.0**-52)
    # The largest element is no distance from itself.
    assert off[0] == 0


def test_an_infinite_sum_has_no_roundings():
    (off,) = tolerance(saturated, {"x": np.array([np.inf, np.nan])}, 2.0**-52)
    assert off == 0
    assert saturated(np.array([np.inf])) == 1
