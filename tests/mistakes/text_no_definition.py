"""A text that is no definition."""

import redlang

redlang.compile("y = x + 1")
