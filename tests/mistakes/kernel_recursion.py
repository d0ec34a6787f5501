"""Kernels do not recurse."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return kernel(x / 2)
