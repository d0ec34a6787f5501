"""Parameters cannot be assigned."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    x = x - max[n](x)
    return exp(x)
