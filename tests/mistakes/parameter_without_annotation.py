"""A kernel's parameters say what they are."""

import redlang


@redlang.kernel
def kernel(x, y: "n") -> "n":
    return x * y
