"""A number of an object that does not exist."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return x * cfg.eps
