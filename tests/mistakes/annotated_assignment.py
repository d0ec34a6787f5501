"""A local with an annotation."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    y: "m n" = x * 2
    return y
