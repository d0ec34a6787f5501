"""A default has its parameter's kind."""

import redlang


@redlang.kernel
def kernel(x: "n", k: int = 0.5) -> "n":
    return x * k
