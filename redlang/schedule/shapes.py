"""Spreads of one axis: how many threads, how many registers."""

from __future__ import annotations

from redlang.schedule.facts import power_above
from redlang.schedule.threads import Spread


def power_below(extent: int) -> int:
    """Return the largest power of two that is not above `extent`."""
    return 1 << max(0, max(1, extent).bit_length() - 1)


def spread_whole(axis: str, extent: int, threads: int, registers: int) -> Spread:
    """Spread a whole extent, in registers as far as there is room, then over threads."""
    count = min(threads, power_above(-(-extent // max(1, registers))))
    return Spread(axis, -(-extent // count), count)


def spread_part(axis: str, extent: int, threads: int, registers: int) -> Spread:
    """Spread a tile of an axis: threads first, then registers."""
    count = min(threads, power_above(extent))
    rounds = min(registers, max(1, -(-extent // count)))
    return Spread(axis, rounds, count)
