"""Slices, stacked brackets and an ellipsis."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    a = x[0:8, n] + x[:, 0]
    b = x[m][n] + x[..., 0]
    return a + b
