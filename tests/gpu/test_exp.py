"""exp, sin and cos at every f32 from 2^-26 to 2^9 in magnitude, and samples of the rest: 2 ulp."""

import numpy as np
import pytest

from tests.gpu.launching import Buffer, launch, load

pytestmark = pytest.mark.gpu

SOURCE = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *

load = t.load(t.Access("f32", 1))
put = t.store(t.Access("f32", 1))


def kernel(x, y):
    place = i64(cuda.blockIdx.x) * 256 + i64(cuda.threadIdx.x)
    put(y + place * 4, True, {word}(load(x + place * 4)))
"""
CHUNK = 1 << 24


@pytest.mark.parametrize(
    ("word", "reference"),
    [("exp", np.exp), ("exp2", np.exp2), ("sin", np.sin), ("cos", np.cos)],
)
def test_results_are_within_two_ulp(word, reference):
    source = SOURCE.format(word=word)
    _, kernel = load(source, "kernel", ("i64", "i64"), threads=256)
    x_buffer, y_buffer = Buffer(CHUNK * 4), Buffer(CHUNK * 4)
    worst = 0.0
    # Elsewhere powers are 1, 0 or infinite to the last bit, and samples are enough.
    for start in range(0, 1 << 32, CHUNK):
        x = np.arange(start, start + CHUNK, dtype=np.uint32).view(np.float32)
        if np.abs(x[CHUNK // 2]) > 2**9 or np.abs(x[CHUNK // 2]) < 2**-26:
            x = x[:: CHUNK // 4096]
        x_buffer.write(x)
        launch(kernel, -(-len(x) // 256), x_buffer.address, y_buffer.address)
        y = y_buffer.read(x.shape, np.float32)
        with np.errstate(all="ignore"):
            wanted = reference(x.astype(np.float64))
            rounded = wanted.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(y[np.isinf(rounded)], np.inf)
        error = np.abs(y[finite].astype(np.float64) - wanted[finite])
        worst = max(worst, float((error / np.spacing(np.abs(rounded[finite]))).max(initial=0)))
    print(f"{word}: worst error {worst:.3f} ulp")
    assert worst <= 2


def _logistic(x):
    return 1 / (1 + np.exp(-x))


def error_of(word, reference):
    """Return the largest relative error between -87 and 87."""
    _, kernel = load(SOURCE.format(word=word), "kernel", ("i64", "i64"), threads=256)
    x = np.linspace(-87, 87, 1 << 20, dtype=np.float32)
    x_buffer, y_buffer = Buffer(x.nbytes).write(x), Buffer(x.nbytes)
    launch(kernel, len(x) // 256, x_buffer.address, y_buffer.address)
    wanted = reference(x.astype(np.float64))
    return np.abs(y_buffer.read(x.shape, np.float32) / wanted - 1).max()


@pytest.mark.parametrize(
    ("word", "reference"), [("short_exp", np.exp), ("short_sigmoid", _logistic)]
)
def test_short_forms_are_off_by_a_hundredth_of_an_ulp_of_f16(word, reference):
    assert error_of(word, reference) <= 2**-17


def test_sigmoid_is_within_two_ulp():
    assert error_of("sigmoid", _logistic) <= 2 * 2.0**-23


@pytest.mark.parametrize("word", ["sigmoid", "short_sigmoid"])
def test_sigmoid_at_the_ends(word):
    _, kernel = load(SOURCE.format(word=word), "kernel", ("i64", "i64"), threads=256)
    x = np.zeros(256, np.float32)
    x[:6] = [-np.inf, np.inf, np.nan, -200, 200, 0]
    x_buffer, y_buffer = Buffer(x.nbytes).write(x), Buffer(x.nbytes)
    launch(kernel, 1, x_buffer.address, y_buffer.address)
    np.testing.assert_array_equal(y_buffer.read(x.shape, np.float32)[:6], [0, 1, np.nan, 0, 1, 0.5])


@pytest.mark.parametrize(("word", "x"), [("exp", [0.0, -0.0]), ("exp2", np.arange(-149.0, 128.0))])
def test_exact_powers_are_exact(word, x):
    _, kernel = load(SOURCE.format(word=word), "kernel", ("i64", "i64"), threads=256)
    values = np.zeros(512, np.float32)
    values[: len(x)] = x
    x_buffer, y_buffer = Buffer(values.nbytes).write(values), Buffer(values.nbytes)
    launch(kernel, 2, x_buffer.address, y_buffer.address)
    y = y_buffer.read(values.shape, np.float32)
    np.testing.assert_array_equal(y, np.exp2(values.astype(np.float64)).astype(np.float32))


def test_powers_are_within_three_ulp_and_end_as_those_of_c(rng):
    text = SOURCE.replace("kernel(x, y)", "kernel(x, e, y)").format(word="power")
    text = text.replace("(load(x + place * 4))", "(load(x + place * 4), load(e + place * 4))")
    _, kernel = load(text, "kernel", ("i64", "i64", "i64"), threads=256)
    ends = np.array([0.0, 1, 2, 3, 0.5, np.inf, np.nan, 1e-40, 3e38])
    x, e = (side.ravel() for side in np.meshgrid([*ends, *-ends], [*ends, *-ends]))
    count = 1 << 20
    some = np.exp2(rng.uniform(-140, 127, count)).astype(np.float32)
    some[::2] = rng.uniform(0.4, 2.5, count // 2)
    most = 125 / np.maximum(np.abs(np.log2(some)), 1e-6)
    x = np.concatenate([x, some, -some[:256]])
    e = np.concatenate([e, rng.uniform(-1, 1, count) * most, np.arange(256) % 7 - 3])
    x, e = (np.resize(v, -(-len(x) // 256) * 256).astype(np.float32) for v in (x, e))
    buffers = [Buffer(4 * len(x)) for _ in range(3)]
    buffers[0].write(x)
    buffers[1].write(e)
    launch(kernel, len(x) // 256, *(buffer.address for buffer in buffers))
    y = buffers[2].read(x.shape, np.float32)
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), e.astype(np.float64))
        rounded = wanted.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(y[~finite], rounded[~finite])
    np.testing.assert_array_equal(np.signbit(y[finite]), np.signbit(rounded[finite]))
    error = np.abs(y[finite].astype(np.float64) - wanted[finite])
    assert (error / np.spacing(np.abs(rounded[finite]))).max() <= 3
