"""A macro's integers are among its parameters."""

import redlang


@redlang.function(axes="l", integers="label")
def taken(x, place):
    return sum[l](where(l == place, x))


@redlang.kernel
def one(x: "m n", y: "i64[m]") -> "m":
    return taken[n](x, y)
