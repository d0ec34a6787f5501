"""A macro takes its arguments."""

import redlang

@redlang.function(axes="l")
def softmax(s):
    p = exp(s - max[l](s))
    return p / sum[l](p)


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return softmax[n](x, scale=2)
