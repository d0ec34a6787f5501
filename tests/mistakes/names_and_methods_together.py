"""Several mistakes of different kinds, all reported."""

import numpy as np
import redlang


@redlang.kernel
def kernel(x: np.ndarray, y: "b, n") -> "b":
    s = x.sum()
    for i in range(8):
        s += y
    t = a < b & c < d
    return f"{t}"
