"""Results over their inputs: allowed only where every element is read first, and then right."""

import numpy as np
import pytest

import redlang

f32 = np.float32

SAFE = {
    "map": ('def f(x: "m n") -> "m n":\n    return x * 2 + n\n', (7, 9)),
    "softmax": (
        'def f(x: "m n") -> "m n":\n    p = exp(x - max[n](x))\n    return p / sum[n](p)\n',
        (300, 2000),
    ),
    "columns": ('def f(x: "m n") -> "m n":\n    return x - mean[m](x)\n', (50, 70)),
    "long rows": ('def f(x: "m n") -> "m n":\n    return x - max[n](x)\n', (3, 70_000)),
}
UNSAFE = {
    "transposed": ('def f(x: "m n") -> "n m":\n    return x\n', (6, 6)),
    "reversed": ('def f(x: "n") -> "n":\n    return fill(x[size(n) - 1 - n], 0)\n', (9,)),
    "twice": ('def f(x: "m n") -> ("m n", "m n"):\n    return x * 2, x * 3\n', (4, 5)),
    "other axes": ('def f(x: "m", y: "n") -> "m":\n    return x + sum[n](y)\n', (8,)),
}


@pytest.mark.parametrize("name", list(SAFE))
def test_what_is_read_first_may_be_overwritten(name):
    text, shape = SAFE[name]
    kernel = redlang.compile(text)
    x = np.random.default_rng(4).normal(size=shape).astype(f32)
    expected = kernel(x)
    assert kernel(x, out=x) is x
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("name", ["transposed", "reversed", "twice"])
def test_what_is_read_again_may_not(name):
    text, shape = UNSAFE[name]
    kernel = redlang.compile(text)
    x = np.ones(shape, f32)
    out = (x, np.ones_like(x)) if name == "twice" else x
    with pytest.raises(redlang.ArgumentError, match="shares memory with x"):
        kernel(x, out=out)
    assert (x == 1).all()


def test_an_array_that_every_element_needs_may_not():
    text, _ = UNSAFE["other axes"]
    kernel = redlang.compile(text)
    x = np.arange(8, dtype=f32)
    with pytest.raises(redlang.ArgumentError, match="out shares memory with y"):
        kernel(np.ones(8, f32), x, out=x)
    y = np.arange(8, dtype=f32)
    np.testing.assert_array_equal(kernel(y, x, out=y), np.arange(8) + 28)
