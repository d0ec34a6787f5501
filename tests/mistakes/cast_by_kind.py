"""A cast names an element type."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return int(x)
