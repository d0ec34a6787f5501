"""A function that is nearly one of the language."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return sigmod(x)
