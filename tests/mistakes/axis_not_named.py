"""A reduction says over which axis."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return max(x)
