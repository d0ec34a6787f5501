"""size takes an axis."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return sum[n](x) / size(x)
