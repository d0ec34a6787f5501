"""An extent is an integer."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "k":
    k = axis(size(n) / 2)
    return k
