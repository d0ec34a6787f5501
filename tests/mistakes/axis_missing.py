"""Reducing an axis that the operand lacks."""

import redlang


@redlang.kernel
def kernel(x: "m n", y: "m") -> "m":
    return sum[n](x) + sum[n](y)
