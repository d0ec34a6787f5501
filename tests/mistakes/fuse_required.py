"""A cascade that must share one sweep and cannot."""

import numpy as np
import redlang


@redlang.kernel(fuse="require")
def deviation(x: "n") -> "":
    mu = sum[n](x) / size(n)
    return sum[n](abs(x - mu))


deviation(np.ones(8, np.float32))
