"""A result has a value everywhere."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return where(n <= m, x)
