"""A Python function cannot be called."""

import numpy as np
import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    return np.exp(x)
