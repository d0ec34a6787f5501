"""Brackets behind a function that hold no axis name."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    a = sum[n + 1](x)
    b = sum[1](x)
    return a + b
