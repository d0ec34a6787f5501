"""Statements behind the return."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return x
    y = x * 2
