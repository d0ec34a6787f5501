"""An axis stands once in an annotation."""

import redlang


@redlang.kernel
def kernel(x: "i i") -> "i":
    return x
