"""A cascade that cannot be fused, and what redlang says.

    a[m] = mean over n of |x[m, n] - mean_n x|          x: f32[M, N]

The mean absolute deviation has no bounded state: when the mean moves, each element may change the
sign of its difference, so all of them would have to be remembered. redlang proves that, shows an
input that breaks the equation, and runs a second sweep. The result is right either way.
"""

import numpy as np

import redlang


@redlang.kernel
def absolute_deviation(x: "m n") -> "m":
    """Mean absolute deviation of each row from its mean."""
    return mean[n](abs(x - mean[n](x)))


@redlang.kernel(fuse="require")
def insisting(x: "m n") -> "m":
    """The same, with an error in place of a second sweep."""
    return mean[n](abs(x - mean[n](x)))


def reference(x):
    """The same with NumPy, in float64."""
    wide = x.astype(np.float64)
    return np.abs(wide - wide.mean(axis=1, keepdims=True)).mean(axis=1)


def main():
    """Run in two sweeps, then ask for one and read the refusal."""
    x = np.random.default_rng(7).normal(size=(256, 4096)).astype(np.float32)
    difference = np.abs(absolute_deviation(x) - reference(x)).max()
    print(f"largest difference: {difference:.1e}")
    print(f"sweeps over the data: {len(absolute_deviation.sweeps[0])}")
    print(absolute_deviation.explain("fuse"))
    try:
        insisting(x)
    except redlang.FusionError as refusal:
        print(refusal)
    return difference


if __name__ == "__main__":
    main()
