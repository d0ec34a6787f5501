"""A name that is nearly one of the kernel's."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    total = sum[n](x)
    return totl / size(n)
