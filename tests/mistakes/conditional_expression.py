"""A choice for each element is where."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return x if x > 0 else 0
