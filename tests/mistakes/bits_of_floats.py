"""Bitwise operators take bools or integers."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return x & 1
