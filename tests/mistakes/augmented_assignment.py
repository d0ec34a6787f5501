"""Assignments in place."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    y = sum[n](x)
    y *= 0.5
    return y
