"""Lines that are not complete."""

import redlang

redlang.compile(
    '''
def f(x: "m n") -> "m n"
    a = x +
    b = exp(x,, 2)
    c = x y
    return
'''
)
