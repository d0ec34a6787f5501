"""A reduction has a value over nothing too."""

import redlang


@redlang.kernel
def kernel(x: "b t", mask: "bool[b t]") -> "b":
    return fill(mean[t](where(mask, x)), 0)
