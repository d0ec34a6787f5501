"""Arguments unpacked in a call."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return f(*x, **options)
