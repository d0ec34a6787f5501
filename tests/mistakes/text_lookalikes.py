"""Signs that look right and are not, and operators of other languages."""

import redlang

redlang.compile(
    '''
def f(x: "m n") -> "m n":
    a = x × 2 − 1
    b = where(n ≤ m && m < 8, x, 0)
    c = x² + !x
    return a + b + c
'''
)
