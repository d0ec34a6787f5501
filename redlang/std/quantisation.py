"""Scaled quantisation of blocks.

The scale is the largest magnitude along l over the largest code. It never falls below the smallest
normal f32: a block of zeros, or of numbers so small that their scale would vanish, has codes 0 and
a finite scale. A NaN makes its whole block NaN, an infinity the scale; other blocks are untouched.
With `x: "r (b l=128)"` each run of 128 has its own scale, a ragged last run included.
"""

from redlang.kernel import function
from redlang.std.arrays import on_arrays


@on_arrays(x="... l", returns="f8e4m3[... l], wide[...]")
@function(axes="l")
def quantize(x):
    """Return f8e4m3 codes and their scale along l: x is about code * scale."""
    scale = maximum(max[l](abs(x)) / 448, 1.1754943508222875e-38)
    return f8e4m3(x / scale), scale


@on_arrays(x="... l", returns="i8[... l], wide[...]")
@function(axes="l")
def quantize_int8(x):
    """Return int8 codes in -127..127 and their scale along l: x is about code * scale.

    The codes of a block with a NaN are 0; its scale is NaN.
    """
    scale = maximum(max[l](abs(x)) / 127, 1.1754943508222875e-38)
    return i8(round(x / scale)), scale
