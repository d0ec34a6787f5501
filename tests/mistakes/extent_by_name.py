"""An extent that is a number from outside."""

import redlang

G = 4


@redlang.kernel
def kernel(x: "b (g=G c)") -> "b g":
    return sum[c](x)
