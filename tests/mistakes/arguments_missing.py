"""Brackets that say along which axis, and nothing behind them."""

import redlang
from redlang import std


@redlang.kernel
def kernel(w: "k", x: "m n") -> "m n":
    y = sum[n] * x
    return std.softmax[n] + y + max[n]
