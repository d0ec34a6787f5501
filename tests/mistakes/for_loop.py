"""A for loop."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    total = 0
    for i in range(8):
        total += x
    return total
