"""A lambda."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    square = lambda a: a * a
    return square(x)
