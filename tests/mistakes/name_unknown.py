"""A name that means nothing."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return x * epsilon
