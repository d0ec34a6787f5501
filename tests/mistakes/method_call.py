"""Methods and attributes of arrays."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    y = x.T - x.mean(axis=1)
    z = (y * y).sum()
    return z / x.shape[1]
