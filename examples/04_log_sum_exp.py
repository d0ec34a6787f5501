"""Log-sum-exp, and the library: the same formula under a name.

    lse[m] = max_n x + log sum_n exp(x[m, n] - max_n x)          x: f32[M, N]

`std.logsumexp` is written in the language. It also says what a row of -inf gives, which the plain
formula leaves to IEEE arithmetic (NaN).
"""

import numpy as np

import redlang
from redlang import std


@redlang.kernel
def plain(x: "m n") -> "m":
    """Log-sum-exp as it stands in a textbook."""
    top = max[n](x)
    return top + log(sum[n](exp(x - top)))


@redlang.kernel
def library(x: "m n") -> "m":
    """Log-sum-exp with its edge cases defined."""
    return std.logsumexp[n](x)


def reference(x):
    """The same with NumPy."""
    top = x.max(axis=1)
    return top + np.log(np.exp(x - top[:, None]).sum(axis=1))


def main():
    """Compare both with NumPy, then on a row of -inf."""
    x = 5 * np.random.default_rng(4).normal(size=(256, 4096)).astype(np.float32)
    expected = reference(x.astype(np.float64))
    difference = max(np.abs(kernel(x) - expected).max() for kernel in (plain, library))
    print(f"largest difference: {difference:.1e}")
    nothing = np.full((1, 8), -np.inf, np.float32)
    print(f"a row of -inf: plain {plain(nothing)[0]}, library {library(nothing)[0]}")
    print(library.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
