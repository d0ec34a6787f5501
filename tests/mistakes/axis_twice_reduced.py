"""An axis is reduced once."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return sum[n, n](x)
