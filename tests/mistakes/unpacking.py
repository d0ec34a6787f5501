"""Stars and nested targets."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    a, *b = f(x)
    (c, (d, e)) = g(x)
    return c
