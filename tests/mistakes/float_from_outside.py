"""A float where an integer is needed."""

import redlang


K = 2.0


@redlang.kernel
def kernel(x: "t e") -> "t":
    best, place = topk[e:j](x, K)
    n = axis(K)
    return sum[j](best) + (t & K) + x[0, K + 0]
