"""An if statement."""

import redlang


@redlang.kernel
def kernel(x: "m n", causal: bool) -> "m n":
    y = x
    if causal:
        y = where(n <= m, x, 0)
    else:
        y = x
    return y
