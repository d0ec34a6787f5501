"""A result lists all axes of its value."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return exp(x)
