"""Strings."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    name = f"x{n}"
    mode = "mean"
    return x
