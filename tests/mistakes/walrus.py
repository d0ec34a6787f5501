"""An assignment inside an expression."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    y = exp(x - (top := max[n](x)))
    return y / top
