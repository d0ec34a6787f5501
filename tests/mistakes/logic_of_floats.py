"""Logic takes bools."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "bool[n]":
    return x and x > 0
