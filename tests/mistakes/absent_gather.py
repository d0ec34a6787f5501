"""A gather may miss."""

import redlang


@redlang.kernel
def kernel(x: "m n", label: "i32[m]") -> "m":
    return x[m, label]
