"""An axis that a subscript names, and that is meant: it is read as an index, too."""

import redlang


@redlang.kernel
def kernel(x: "m n", labels: "m") -> "m":
    element = x[m, label]
    return where(label < size(m), element, labels)
