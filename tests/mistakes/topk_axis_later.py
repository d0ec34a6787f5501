"""The axis that topk makes has no name."""

import redlang


@redlang.kernel
def kernel(x: "t e") -> "t j":
    best, where_ = topk[e](x, 4)
    total = sum[j](best)
    first = best[0]
    return best
