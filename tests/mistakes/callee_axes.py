"""A called kernel's axes match by name."""

import redlang

@redlang.kernel
def norm(x: "m n") -> "m n":
    return x * rsqrt(sum[n](x * x))


@redlang.kernel
def kernel(x: "i j") -> "i j":
    return norm(x)
