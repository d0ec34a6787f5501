"""A monoid that holds more than functions."""

import redlang


@redlang.monoid
class Product:
    """Products."""

    identity = 1

    def init():
        return 1

    def lift(x):
        return x if x else 1

    def combine(a, b):
        return a * b

    def finish(a):
        for i in a:
            pass
        return a


@redlang.kernel
def product(x: "n") -> "":
    return Product[n](x)
