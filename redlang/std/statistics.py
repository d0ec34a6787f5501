"""Moments, and vectors of length one.

Variances are sums of squared differences from the mean, never a difference of two large sums: the
fused form keeps a reference point (Welford; Chan, Golub and LeVeque 1979) and stays right where
mean/std is 1e6.
"""

from redlang.kernel import function
from redlang.std.arrays import on_arrays


@on_arrays(x="... l", returns="...")
@function(axes="l")
def mean(x):
    """Return the mean of the visible elements along l; NaN where there are none."""
    return mean[l](x)


@on_arrays(x="... l", returns="...")
@function(axes="l")
def var(x):
    """Return the mean squared difference from the mean along l (ddof 0).

    One element has variance 0, none has NaN. Multiply by `n / (n - 1)` for the sample variance.
    """
    return mean[l]((x - mean[l](x)) ** 2)


@on_arrays(x="... l", returns="...")
@function(axes="l")
def std(x):
    """Return the standard deviation along l: the square root of `var`."""
    return sqrt(mean[l]((x - mean[l](x)) ** 2))


@on_arrays(x="... l", y="... l", returns="...")
@function(axes="l")
def covariance(x, y):
    """Return the mean product of x's and y's differences from their means along l (ddof 0)."""
    return mean[l]((x - mean[l](x)) * (y - mean[l](y)))


@on_arrays(x="... l", returns="... l")
@function(axes="l")
def normalize(x, eps=1e-12):
    """Return x divided by its Euclidean norm along l, or by eps if the norm is smaller.

    A row of zeros stays zeros. The squares are added in the accumulation type: in f32 a row whose
    sum of squares passes 3.4e38 gives 0.
    """
    return x / maximum(sqrt(sum[l](x * x)), eps)
