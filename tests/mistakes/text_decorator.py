"""A decorator whose options are no literals."""

import redlang

redlang.compile(
    '''
@redlang.kernel(fuse=["auto"])
def f(x: "n") -> "n":
    return x
'''
)
