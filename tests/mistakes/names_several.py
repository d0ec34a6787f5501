"""Several mistakes; what follows from them stays silent."""

import redlang


@redlang.kernel
def kernel(x: "m n", y: "m") -> "m":
    a = exp(x) + foo
    b = a * 2
    n = 3
    return sum[k](b) + sum[n](y)
