"""A subscript is an integer."""

import redlang


@redlang.kernel
def kernel(x: "n", y: "m") -> "m":
    return fill(x[y], 0)
