"""A number kept in an object."""

import redlang

class cfg:
    eps = 1e-5
    heads = 8


@redlang.kernel
def kernel(x: "n") -> "n":
    return x + cfg.epss
