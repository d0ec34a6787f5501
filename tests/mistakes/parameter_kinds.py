"""Parameters that take any number of arguments, or only positional ones."""

import redlang


@redlang.kernel
def collect(x: "n", /, *rest, **options) -> "n":
    return x
