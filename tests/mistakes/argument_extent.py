"""Arguments of a call whose extents do not agree."""

import numpy as np
import redlang


@redlang.kernel
def product(a: "m d", b: "n d") -> "m n":
    return sum[d](a * b)


product(np.ones((4, 3), np.float32), np.ones((5, 2), np.float32))
