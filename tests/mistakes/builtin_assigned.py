"""Builtins are reserved."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    max = max[n](x)
    return max
