"""Only array parameters take subscripts."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    y = exp(x)
    return y[m, 0]
