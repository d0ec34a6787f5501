"""A misspelled array among the subscripts."""

import redlang


@redlang.kernel
def kernel(x: "m n", labels: "m") -> "m":
    return max[n](x) - x[m, label]
