"""Rows of different lengths: elements that are absent.

    mean[m] = mean of x[m, n] over n < length[m]
    p[m, n] = softmax of x[m, n] over n < length[m], 0 elsewhere

    x: f32[M, N], length: i32[M]

`where(c, x)` makes the other elements absent: reductions pass over them, so it does not matter what
stands there, NaN included, and tiles without a visible element are skipped. `fill` gives a value
back before anything is returned.
"""

import numpy as np

import redlang
from redlang import std


@redlang.kernel
def ragged(x: "m n", length: "i32[m]") -> ("m", "m n"):
    """Mean and softmax of the first `length` elements of each row."""
    seen = where(n < length, x)
    return mean[n](seen), fill(std.softmax[n](seen), 0)


def reference(x, length):
    """The same with NumPy, row by row."""
    means, weights = np.full(len(x), np.nan), np.zeros(x.shape)
    for row, count in enumerate(length):
        if count:
            seen = x[row, :count].astype(np.float64)
            p = np.exp(seen - seen.max())
            means[row], weights[row, :count] = seen.mean(), p / p.sum()
    return means, weights


def main():
    """Hide NaN behind the mask and compare what is left."""
    rng = np.random.default_rng(8)
    x, length = rng.normal(size=(64, 1000)).astype(np.float32), rng.integers(0, 1000, 64)
    length[0] = 0
    x[np.arange(1000) >= length[:, None]] = np.nan
    results, expected = ragged(x, length.astype(np.int32)), reference(x, length)
    assert np.isnan(results[0]).tolist() == [True] + [False] * 63
    difference = max(
        np.nanmax(np.abs(one - other)) for one, other in zip(results, expected, strict=True)
    )
    print(f"largest difference: {difference:.1e}")
    print(ragged.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
