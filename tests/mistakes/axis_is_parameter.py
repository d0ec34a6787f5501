"""Axes and parameters share one namespace."""

import redlang


@redlang.kernel
def kernel(x: "m n", n: float) -> "m n":
    return x * n
