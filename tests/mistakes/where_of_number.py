"""A condition is a bool."""

import redlang


@redlang.kernel
def kernel(x: "n", mask: "i32[n]") -> "":
    return sum[n](where(mask, x))
