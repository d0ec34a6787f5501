"""A try statement."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    try:
        y = 1 / x
    except ZeroDivisionError:
        y = 0
    return y
