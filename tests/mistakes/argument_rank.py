"""An argument of a call with the wrong number of dimensions."""

import numpy as np
import redlang


@redlang.kernel
def total(x: "m n") -> "m":
    return sum[n](x)


total(np.ones(4, np.float32))
