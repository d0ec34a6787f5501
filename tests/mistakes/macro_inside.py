"""A mistake inside a macro says where it is called."""

import redlang

@redlang.function(axes="l")
def softmax(s):
    p = exp(s - max[l](s))
    return p / sum[l](p)


@redlang.kernel
def kernel(x: "m n", y: "m") -> "m":
    return softmax[n](y)
