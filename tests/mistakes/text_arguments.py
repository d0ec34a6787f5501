"""Arguments given twice, or in a place that Python has not."""

import redlang

redlang.compile(
    '''
def f(x: "n", x: "n", *, y=1, *) -> "n":
    a = f(scale=1, scale=2)
    b = f(scale=1, x)
    return a + b
'''
)
