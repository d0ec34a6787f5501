"""Where lanes side by side read shared memory at once without meeting in its banks."""

from __future__ import annotations


def apart(size: int) -> int:
    """Return how far apart regions of `size` bytes lie, which lanes side by side read at once.

    It is an odd number of 16 bytes: eight accesses of 16 bytes then meet no bank of shared memory
    twice. At 128 bytes apart all eight would meet in one.
    """
    return -(-size // 16) * 16 | 16
