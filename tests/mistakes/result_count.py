"""As many results as annotated."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> ("m", "m"):
    return sum[n](x)
