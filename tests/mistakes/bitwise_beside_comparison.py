"""Bitwise operators beside comparisons without parentheses."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m n":
    a = where(n <= m & m < 8, x, 0)
    b = where(~n == m, x, 0)
    return a + b
