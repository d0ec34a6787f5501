"""Two assignments on one line, and a tuple assigned to names."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    a = b = x
    c, d = a, b
    return c + d
