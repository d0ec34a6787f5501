"""Subscripts of something that is no parameter."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return (x * 2)[m, 0]
