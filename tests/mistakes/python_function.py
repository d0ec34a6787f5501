"""A Python function of one's own."""

import redlang

def double(x):
    return 2 * x


@redlang.kernel
def kernel(x: "n") -> "n":
    return double(x)
