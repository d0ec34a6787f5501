"""2/pi to any number of bits, which reducing large arguments of sine and cosine takes."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

_BITS = 400


def _arctan_inverse(n: int) -> int:
    """Return 2^400 · arctan(1 / n), truncated, by its series."""
    term = total = (1 << _BITS) // n
    k = 1
    while term:
        term //= -n * n
        k += 2
        total += term // k
    return total


@cache
def two_over_pi() -> Fraction:
    """Return 2/pi to nearly 400 bits, by Machin's formula."""
    return Fraction(2 << _BITS, 4 * (4 * _arctan_inverse(5) - _arctan_inverse(239)))
