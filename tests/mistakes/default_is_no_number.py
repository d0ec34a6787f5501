"""Defaults that are no numbers."""

import redlang

EPS = 1e-5


@redlang.kernel
def normalise(x: "m n", mask: "n" = None, eps: float = EPS) -> "m n":
    return x / sqrt(sum[n](x * x) + eps)
