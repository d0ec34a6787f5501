"""An option that only Python could evaluate, in a text that Python never runs."""

import redlang

redlang.compile(
    '''
@redlang.kernel(fuse=MODE)
def f(x: "n") -> "n":
    return x
'''
)
