"""An assertion and an exception."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    assert x > 0, "positive"
    raise ValueError(x)
    return x
