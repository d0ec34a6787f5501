"""Spreads of one axis: how many threads, how many registers."""

from __future__ import annotations

from collections.abc import Sequence

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


def spread_units(axes: Sequence[tuple[str, int]], threads: int) -> list[Spread]:
    """Spread units of a grid over threads, neighbours along its last axis first."""
    found: list[Spread] = []
    for axis, extent in reversed(axes):
        spread = spread_part(axis, extent, threads, 1)
        if spread.threads > 1:
            found.append(spread)
            threads //= spread.threads
    return found
