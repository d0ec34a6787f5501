"""A dimension of two axes of which no argument says how long one is."""

import redlang


@redlang.kernel
def kernel(x: "b (g c)") -> "b g":
    return sum[c](x)
