"""Softmax: the result has the shape of the input.

    p[m, n] = exp(x[m, n] - max_n x) / sum_n exp(x[m, n] - max_n x)          x: f32[M, N]

Maximum and sum share one sweep; the weights need both, so they are written in a last one, over a
row that is still in the cache.
"""

import numpy as np

import redlang


@redlang.kernel
def softmax(x: "m n") -> "m n":
    """Softmax of each row."""
    p = exp(x - max[n](x))
    return p / sum[n](p)


def reference(x):
    """The same with NumPy, in float64."""
    p = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def main():
    """Run the kernel and print how far it is from NumPy."""
    x = 5 * np.random.default_rng(3).normal(size=(256, 4096)).astype(np.float32)
    difference = np.abs(softmax(x) - reference(x)).max()
    print(f"largest difference: {difference:.1e}")
    print(softmax.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
