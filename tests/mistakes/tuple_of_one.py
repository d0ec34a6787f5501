"""A comma too many."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return x,
