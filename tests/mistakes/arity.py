"""An element function takes a fixed number of arguments."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return clip(x, 0)
