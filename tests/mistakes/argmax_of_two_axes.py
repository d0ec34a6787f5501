"""One index for each axis."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "":
    return argmax[m, n](x) + 1
