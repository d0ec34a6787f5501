"""Layer norm into a matrix product: a contraction that reads two reductions.

    d[m, n] = x[m, n] - mean_n x
    o[m, k] = sum over n of d[m, n] / sqrt(mean_n d^2 + eps) * g[n] * w[n, k]

    x: f32[M, N], g: f32[N], w: f32[N, K]  ->  o: f32[M, K]

The factor with the variance leaves the sum, and what remains moves with the mean: one sweep over x
and w gives mean, variance and product together.
"""

import numpy as np

import redlang


@redlang.kernel
def norm_and_project(x: "m n", g: "n", w: "n k", eps: float = 1e-5) -> "m k":
    """Layer norm of the rows of x, times g, times the matrix w."""
    d = x - mean[n](x)
    return sum[n](d * rsqrt(mean[n](d * d) + eps) * g * w)


def reference(x, g, w, eps=1e-5):
    """The same with NumPy, in float64."""
    d = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    return (d / np.sqrt((d * d).mean(axis=1, keepdims=True) + eps) * g) @ w


def main():
    """Run the kernel and print how far it is from NumPy."""
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(256, 512)), rng.normal(size=(512, 128)) / 512**0.5
    x, g, w = x.astype(np.float32), rng.normal(size=512).astype(np.float32), w.astype(np.float32)
    difference = np.abs(norm_and_project(x, g, w) - reference(x, g, w)).max()
    print(f"largest difference: {difference:.1e}")
    print(norm_and_project.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
