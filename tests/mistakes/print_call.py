"""A print call and a value that goes nowhere."""

import redlang


@redlang.kernel
def kernel(x: "n") -> "n":
    print("x is", x)
    exp(x)
    return x
