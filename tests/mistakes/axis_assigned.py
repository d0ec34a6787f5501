"""Axes cannot be assigned."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    n = sum[n](x)
    return n
