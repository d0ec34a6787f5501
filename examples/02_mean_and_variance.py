"""Two reductions, the second of which reads the first: a cascade.

    mean[m] = 1/N sum over n of x[m, n]
    var[m]  = 1/N sum over n of (x[m, n] - mean[m])^2          x: f32[M, N]

As written this passes over x twice. redlang derives the single pass that Welford found by hand: it
carries the sum of squares around a reference point and moves it when the mean moves.
"""

import numpy as np

import redlang


@redlang.kernel
def mean_and_variance(x: "m n") -> ("m", "m"):
    """Mean and variance of each row."""
    mu = mean[n](x)
    return mu, mean[n]((x - mu) ** 2)


def reference(x):
    """The same with NumPy, in float64."""
    wide = x.astype(np.float64)
    return wide.mean(axis=1), wide.var(axis=1)


def main():
    """Run on rows whose mean is a thousand times their spread."""
    x = (1000 + np.random.default_rng(2).normal(size=(256, 4096))).astype(np.float32)
    results, expected = mean_and_variance(x), reference(x)
    difference = max(
        np.abs(one / other - 1).max() for one, other in zip(results, expected, strict=True)
    )
    print(f"largest relative difference: {difference:.1e}")
    print(f"sweeps over the data: {len(mean_and_variance.sweeps[0])}")
    print(mean_and_variance.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
