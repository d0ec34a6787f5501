"""A lambda as a kernel."""

import redlang

double = redlang.kernel(lambda x: x * 2)
