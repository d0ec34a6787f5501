"""A macro needs its axes."""

import redlang

@redlang.function(axes="l")
def softmax(s):
    p = exp(s - max[l](s))
    return p / sum[l](p)


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return softmax(x)
