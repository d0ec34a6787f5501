"""A function that the language writes otherwise."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return relu(x)
