"""A sum over one axis: the smallest kernel.

    s[m] = sum over n of x[m, n]              x: f32[M, N]  ->  s: f32[M]

Axes have names. `sum[n]` reduces the axis n; what is left is m, as the annotation says.
"""

import numpy as np

import redlang


@redlang.kernel
def row_sums(x: "m n") -> "m":
    """The sum of each row."""
    return sum[n](x)


def reference(x):
    """The same with NumPy."""
    return x.astype(np.float64).sum(axis=1)


def main():
    """Run the kernel and print how far it is from NumPy."""
    x = np.random.default_rng(1).normal(size=(512, 4096)).astype(np.float32)
    difference = np.abs(row_sums(x) - reference(x)).max()
    print(f"largest difference: {difference:.1e}")
    print(row_sums.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
