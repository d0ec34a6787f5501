"""any takes a bool."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return any[n](x)
