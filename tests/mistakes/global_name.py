"""A global statement."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    global scale
    return x * scale
