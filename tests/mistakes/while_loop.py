"""A while loop."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    y = x
    while y > 1:
        y = y / 2
    return y
