"""Macros do not recurse."""

import redlang

@redlang.function
def again(x):
    return again(x / 2)


@redlang.kernel
def kernel(x: "n") -> "n":
    return again(x)
