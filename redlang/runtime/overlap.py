"""Whether a result may be stored where the caller asked: overlap by addresses.

Two arrays share memory where some element of one has a byte of the other. Ranges of addresses
answer most calls; where they meet, the strides decide exactly (`x[::2]` and `x[1::2]` share
nothing). What cannot be decided within a bounded effort counts as shared.
"""

from __future__ import annotations

import numpy as np

from redlang.runtime.memory import Memory

EFFORT = 100_000
"""Bound on candidate solutions that the exact test may try, about a millisecond."""

ENUMERATED = 1 << 20
"""Elements up to which offsets are listed to find out whether an array overlaps itself."""


def byte_range(memory: Memory, itemsize: int) -> tuple[int, int]:
    """Return the first address of `memory` and the one behind its last byte.

    An array without elements has an empty range.
    """
    if 0 in memory.shape:
        return memory.address, memory.address
    low = high = memory.address
    for extent, stride in zip(memory.shape, memory.strides or (), strict=True):
        reach = (extent - 1) * stride * itemsize
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + itemsize


def same_elements(a: Memory, b: Memory) -> bool:
    """Tell whether element i of `a` is element i of `b`, for every i."""
    return (
        a.address == b.address
        and a.shape == b.shape
        and a.dtype == b.dtype
        and all(
            extent <= 1 or p == q
            for extent, p, q in zip(a.shape, a.strides or (), b.strides or (), strict=True)
        )
    )


def share_memory(a: Memory, b: Memory, bytes_a: int, bytes_b: int) -> bool:
    """Tell whether `a` and `b`, with elements of so many bytes, have a byte in common."""
    if a.device != b.device:
        return False
    (low_a, high_a), (low_b, high_b) = byte_range(a, bytes_a), byte_range(b, bytes_b)
    if high_a <= low_b or high_b <= low_a or low_a == high_a or low_b == high_b:
        return False
    try:
        return np.shares_memory(
            _Ghost.view(a, bytes_a),
            _Ghost.view(b, bytes_b),
            max_work=EFFORT,  # type: ignore[arg-type]  # the stubs know the two named values only
        )
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(memory: Memory) -> bool:
    """Tell whether two indices of `memory` lead to one element."""
    if 0 in memory.shape:
        return False
    dims = sorted(
        (abs(stride), extent)
        for extent, stride in zip(memory.shape, memory.strides or (), strict=True)
        if extent > 1
    )
    reach = 0
    nested = True
    for stride, extent in dims:
        nested = nested and stride > reach
        reach += stride * (extent - 1)
    if nested:
        return False
    count = int(np.prod([extent for _, extent in dims], dtype=np.int64))
    if count > ENUMERATED or reach + 1 < count:
        return True
    offsets = np.zeros(1, np.int64)
    for stride, extent in dims:
        offsets = (offsets[:, None] + stride * np.arange(extent)).reshape(-1)
    return len(np.unique(offsets)) < count


class _Ghost:
    """Addresses dressed as an array, for NumPy's exact overlap test; nothing is ever read."""

    def __init__(self, interface: dict[str, object]) -> None:
        self.__array_interface__ = interface

    @classmethod
    def view(cls, memory: Memory, itemsize: int) -> np.ndarray[tuple[int, ...], np.dtype[np.void]]:
        interface: dict[str, object] = {
            "data": (memory.address, True),
            "shape": memory.shape,
            "strides": tuple(stride * itemsize for stride in memory.strides or ()),
            "typestr": f"|V{itemsize}",
            "version": 3,
        }
        return np.asarray(cls(interface))
