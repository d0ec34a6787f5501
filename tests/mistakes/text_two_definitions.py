"""Two definitions in one text."""

import redlang

redlang.compile(
    '''
def f(x: "n") -> "n":
    return x

def g(x: "n") -> "n":
    return 2 * x
'''
)
