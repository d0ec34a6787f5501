"""Annotations whose text is wrong."""

import redlang


@redlang.kernel
def wrong(
    a: "b, h",
    b: "... n",
    c: "b (g (r) s)",
    d: "b (g r",
    e: "f16[b] n",
    f: "n=m",
    g: "b:h",
    h: "float",
    i: "f32 n",
    j: "n=1.5",
    k: "m n float32",
) -> "b":
    return a
