"""Comprehensions in place of reductions."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    a = sum(x[m, i] for i in range(8))
    b = max([abs(v) for v in x])
    return a / b
