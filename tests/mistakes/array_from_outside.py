"""An array must be a parameter."""

import numpy as np
import redlang

weights = np.ones(4)


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return x * weights
