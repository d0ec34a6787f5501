"""The parts of a monoid fit together."""

import redlang

@redlang.monoid
class first:
    def init():
        return 0, False

    def lift(x):
        return x, True

    def combine(a, b):
        return where(a[1], a[0], b[0])


@redlang.kernel
def kernel(x: "m n") -> "m":
    return first[n](x)
