"""Determinism, and oracles that look."""

import numpy as np
import pytest

import redlang
from redlang import std
from redlang.testing.compare import assert_close

f32 = np.float32


@redlang.kernel
def attention(q: "m d", k: "n d", v: "n e") -> ("m e", "m"):
    return std.attention_with_lse[m, n, d](q, k, v)


@redlang.kernel
def long_sums(x: "m n") -> ("m", "m"):
    return sum[n](x), std.logsumexp[n](x)


def test_thirty_runs_give_the_same_bits():  # C132
    rng = np.random.default_rng(132)
    q, k, v = (rng.normal(size=(n, 32)).astype(f32) for n in (16, 4096, 4096))
    x = rng.normal(size=(2, 300_000)).astype(f32)
    first = *attention(q, k, v), *long_sums(x)
    for _ in range(29):
        again = *attention(q, k, v), *long_sums(x)
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.parametrize(
    ("actual", "expected"), [([np.nan], [0.0]), ([0.0], [np.nan]), ([np.nan], [np.inf])]
)
def test_an_oracle_never_passes_over_nan(actual, expected):  # C134
    with pytest.raises(AssertionError, match="places of"):
        assert_close(actual, expected)
