"""Norms over a feature axis.

Squares are added in f32 for f16, bf16 and f8 inputs, so a row of 200s does not overflow. In f32 a
row whose sum of squares passes 3.4e38 does: convert it to f64 first.
"""

from redlang.kernel import function
from redlang.std.arrays import on_arrays


@on_arrays(x="... l", gain="l", returns="... l")
@function(axes="l")
def rms_norm(x, gain=1.0, eps=1e-6):
    """Return x over the root of its mean square along l, times gain.

    `eps` is added to the mean square, so a row of zeros stays zeros. Source: arXiv 1910.07467.
    """
    return x * rsqrt(mean[l](x * x) + eps) * gain


@on_arrays(x="... l", gain="l", bias="l", returns="... l")
@function(axes="l")
def layer_norm(x, gain=1.0, bias=0.0, eps=1e-5):
    """Return x with mean 0 and variance 1 along l, times gain, plus bias.

    `eps` is added to the variance (ddof 0), so a constant row gives `bias`. Source: arXiv
    1607.06450.
    """
    d = x - mean[l](x)
    return d * rsqrt(mean[l](d * d) + eps) * gain + bias
