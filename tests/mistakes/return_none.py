"""A return without a value."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return
