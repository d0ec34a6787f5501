"""The k of topk is a literal."""

import redlang


@redlang.kernel
def kernel(x: "t e", k: int) -> "t":
    values, indices = topk[e:j](x, k)
    return sum[j](values)
