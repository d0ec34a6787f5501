"""Where the maximum is, and the k largest.

    a[m]          = the first n with the largest x[m, n]
    v[m, j], i[m, j] = the j-th largest x[m, n] and its n          x: f32[M, N]

The first index wins ties, NaN ranks above every number, and selecting on a softmax selects on the
logits: the map is strictly increasing, so nothing is lost to rounding.
"""

import numpy as np

import redlang
from redlang import std


@redlang.kernel
def choose(x: "m n") -> ("m", "m j", "m j"):
    """The likeliest class, and the four likeliest with their probabilities."""
    p = std.softmax[n](x)
    values, indices = topk[n:j](p, 4)
    return argmax[n](p), values, indices


def reference(x):
    """The same with NumPy."""
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    order = np.argsort(-x, axis=1, kind="stable")[:, :4]
    return x.argmax(axis=1), np.take_along_axis(p, order, axis=1), order


def main():
    """Compare with NumPy: indices exactly, values up to rounding."""
    x = 3 * np.random.default_rng(6).normal(size=(256, 1000)).astype(np.float32)
    (best, values, indices), expected = choose(x), reference(x.astype(np.float64))
    assert (best == expected[0]).all()
    assert (indices == expected[2]).all()
    difference = np.abs(values - expected[1]).max()
    print(f"largest difference: {difference:.1e}")
    print(choose.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
