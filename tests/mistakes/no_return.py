"""A kernel that returns nothing."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    y = x * 2
