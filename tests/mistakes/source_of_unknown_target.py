"""Generated text for a target that does not exist."""

import redlang


@redlang.kernel
def total(x: "n") -> "":
    return sum[n](x)


total.source("abacus")
