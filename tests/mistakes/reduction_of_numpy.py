"""NumPy's reductions."""

import numpy as np
import redlang


@redlang.kernel
def kernel(x: "m n") -> "m":
    return np.sum(x, axis=1) + np.mean(x * x, axis=1)
