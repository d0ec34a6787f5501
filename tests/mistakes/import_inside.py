"""An import inside a kernel."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    import math
    return x * math.pi
