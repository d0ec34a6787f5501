"""One subscript for each dimension."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return x[0]
