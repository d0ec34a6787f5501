"""Only numbers can be used from outside."""

import redlang

weights = [1, 2]


@redlang.kernel
def kernel(x: "n") -> "n":
    return x * weights
