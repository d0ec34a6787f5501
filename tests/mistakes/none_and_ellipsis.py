"""Values that are no numbers."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    a = where(n < 4, x, None)
    b = x + 2j
    return a + b
