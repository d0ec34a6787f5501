"""Reducing an axis that the kernel lacks."""

import redlang


@redlang.kernel
def kernel(x: "rows cols") -> "rows":
    return sum[col](x)
