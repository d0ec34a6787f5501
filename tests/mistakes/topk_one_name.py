"""topk gives values and indices."""

import redlang


@redlang.kernel
def kernel(x: "t e") -> "t 4":
    best = topk[e](x, 4)
    return best
