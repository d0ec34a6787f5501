"""A bracket and a string that nothing closes."""

import redlang

redlang.compile(
    '''
def attention(x: "m n") -> "m":
    s = sum[n](x * (x + 1)
    t = "open
    return s
'''
)
