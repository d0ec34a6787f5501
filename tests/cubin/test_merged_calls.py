"""Calls whose arrays have axes that are one in memory, and others with gaps between them."""

import numpy as np
import pytest

import redlang
from redlang.errors import ArgumentError
from tests.cubin.test_calls import close
from tests.gpu.calling import results

TEXTS = {
    "map": 'def f(x: "b c h w", a: "c") -> "b c h w":\n    return maximum(x + a, 0)\n',
    "planes": 'def f(x: "b c h w", a: "c") -> "b c":\n    return mean[h, w](x * x) * a\n',
    "columns": 'def f(x: "b c h w", a: "c") -> "b c h w":\n'
    "    p = exp(x * a - max[c](x * a))\n    return p / sum[c](p)\n",
    "rows": 'def f(x: "b c h w", a: "c") -> "b c h w":\n'
    "    u = mean[h, w](x)\n    return (x - u) * rsqrt(mean[h, w]((x - u) ** 2) + 1e-5) * a\n",
    "norms": 'def f(x: "b c h w", a: "c") -> ("b c h w", "c"):\n'
    "    u = mean[b, h, w](x)\n    return (x - u) * a, u\n",
}


def layouts(rng, *shape):
    """Yield arrays of one shape: without gaps, with gaps after each axis, turned, reversed."""

    def normal(shape):
        return rng.standard_normal(shape).astype(np.float32)

    yield normal(shape)
    for axis in range(len(shape)):
        longer = [n + 3 * (i == axis) for i, n in enumerate(shape)]
        yield normal(longer)[tuple(slice(0, n) for n in shape)]
    yield normal(shape[::-1]).transpose()
    yield normal(shape)[..., ::-1]
    yield normal(shape)[:, :, ::-1]


def agree(found, expected):
    for a, b in zip(results(found), results(expected), strict=True):
        close(a, np.asarray(b))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("shape", [(3, 5, 7, 9), (2, 4, 1, 33), (2, 70, 5, 1), (1, 3, 40, 8)])
def test_values_do_not_depend_on_gaps(name, shape, gpu, rng):
    kernel = redlang.compile(TEXTS[name])
    a = rng.standard_normal(shape[1]).astype(np.float32)
    for x in layouts(rng, *shape):
        agree(kernel(x, a), kernel.reference(x, a))
    assert gpu.launches


@pytest.mark.parametrize("name", ["map", "rows"])
def test_a_result_may_lie_where_its_elements_were_read(name, gpu, rng):
    kernel = redlang.compile(TEXTS[name])
    x = rng.standard_normal((2, 3, 6, 7)).astype(np.float32)
    a = rng.standard_normal(3).astype(np.float32)
    expected = kernel.reference(x.copy(), a)
    assert kernel(x, a, out=x) is x
    agree(x, expected)
    assert gpu.launches


def test_a_result_may_not_lie_elsewhere_in_what_is_read(gpu, rng):
    kernel = redlang.compile('def f(x: "m n") -> "m n":\n    return x * 2\n')
    x = rng.standard_normal((6, 8)).astype(np.float32)
    with pytest.raises(ArgumentError, match="while it is written"):
        kernel(x[:-1], out=x[1:])
    assert not gpu.launches


def test_results_with_gaps_are_filled(gpu, rng):
    kernel = redlang.compile(TEXTS["map"])
    x = rng.standard_normal((2, 3, 6, 7)).astype(np.float32)
    a = rng.standard_normal(3).astype(np.float32)
    out = np.full((2, 3, 6, 9), np.nan, np.float32)
    kernel(x, a, out=out[..., :7])
    agree(out[..., :7], kernel.reference(x, a))
    assert np.isnan(out[..., 7:]).all()
    assert gpu.launches
