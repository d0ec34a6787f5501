"""The axis of a library function in a kernel."""

import redlang
from redlang import std


@redlang.kernel
def kernel(x: "m n") -> "m n":
    return std.softmax(x, axis=-1) + std.softmax(x) + std.softmax(x, -1)
