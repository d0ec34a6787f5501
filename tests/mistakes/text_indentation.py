"""Indentation that matches nothing."""

import redlang

redlang.compile(
    '''
def f(x: "m n") -> "m n":
    a = x
      b = a
  return a
'''
)
