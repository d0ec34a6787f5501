"""A function inside a kernel."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    def square(a):
        return a * a

    return square(x)
