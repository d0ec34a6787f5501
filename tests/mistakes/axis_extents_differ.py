"""A fixed extent is the same wherever its axis stands."""

import redlang


@redlang.kernel
def kernel(x: "m n=4", y: "n=5") -> "m":
    return sum[n](x * y)
