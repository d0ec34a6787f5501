"""An element assigned by itself."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    y = x
    y[0] = 1
    return y
