"""A result lists axes of the kernel."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m k":
    return exp(x)
