"""An element type that does not exist."""

import redlang


@redlang.kernel
def kernel(x: "f23[n]") -> "n":
    return x
