"""A function whose text nobody kept."""

import redlang

scope = {"redlang": redlang}
exec('@redlang.kernel\ndef double(x: "n") -> "n":\n    return 2 * x\n', scope)
double = scope["double"]
