"""A name that nothing is like: neither is a kernel of the same file."""

import redlang


@redlang.kernel
def tern(x: "n") -> "n":
    return sign(x)


@redlang.kernel
def kernel(x: "m n") -> "m":
    return sum[n](x) + later
