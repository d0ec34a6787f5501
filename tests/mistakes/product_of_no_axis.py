"""A product of arrays that share no axis."""

import redlang


@redlang.kernel
def kernel(a: "m k", b: "l n") -> "m n":
    return a @ b
