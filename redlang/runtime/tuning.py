"""`tune=True` on the CPU: the first call of a class of extents measures a few plans.

The call's own arrays serve, so it takes no memory, and its results come from the plan that won. A
call that stores over its inputs cannot run twice and measures nothing. Choices are kept on disk:
the same program, processor and class of extents is measured once.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from redlang.runtime.cache import disk
from redlang.values import dataclass

Run: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[float, ...]], None]
"""Runs a program on addresses (arrays, then results), strides with whole numbers, floats."""

TRIES = 3
"""Timed runs of each plan after one that warms it up; the fastest counts."""


@dataclass(slots=True)
class Times:
    """What has been measured: by class of calls, the time in seconds of each plan."""

    known: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def get(self, key: str) -> tuple[float, ...] | None:
        """Return times from memory or from disk; None if there are none."""
        if key not in self.known:
            payload = disk().load(key)
            times = None if payload is None else _read(payload)
            if times is None:
                return None
            self.known[key] = times
        return self.known[key]

    def set(self, key: str, times: tuple[float, ...]) -> None:
        """Keep times in memory and on disk."""
        self.known[key] = times
        disk().store(key, pickle.dumps(times))


TIMES = Times()
"""The times of this process."""


def _read(payload: bytes) -> tuple[float, ...] | None:
    try:
        times = pickle.loads(payload)
    except Exception:
        return None
    is_times = isinstance(times, tuple) and times and all(isinstance(t, float) for t in times)
    return times if is_times else None


def best(times: Sequence[float]) -> int:
    """Return the number of the fastest plan, of equals the first."""
    return min(range(len(times)), key=times.__getitem__)


def octaves(extents: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the class of extents that shares a measurement."""
    return tuple((axis, extent.bit_length()) for axis, extent in extents.items())


def on_trial(
    runs: Sequence[Run], inputs: int, results: int, settle: Callable[[tuple[float, ...]], None]
) -> Run:
    """Return a run that measures `runs` at its first call, and is the fastest of them from then on.

    Args:
        runs: What to choose from; the first is what the rules choose.
        inputs: How many of the addresses are inputs, before those of `results`.
        results: How many are results.
        settle: Is told the times.
    """
    chosen: Run | None = None

    def run(addresses: tuple[int, ...], wholes: tuple[int, ...], floats: tuple[float, ...]) -> None:
        nonlocal chosen
        if set(addresses[:inputs]) & set(addresses[inputs : inputs + results]):
            (chosen or runs[0])(addresses, wholes, floats)
            return
        if chosen is None:
            times = tuple(_time(each, addresses, wholes, floats) for each in runs)
            settle(times)
            chosen = runs[best(times)]
        chosen(addresses, wholes, floats)

    return run


def _time(
    run: Run, addresses: tuple[int, ...], wholes: tuple[int, ...], floats: tuple[float, ...]
) -> float:
    shortest = float("inf")
    for number in range(TRIES + 1):
        start = time.perf_counter()
        run(addresses, wholes, floats)
        if number:
            shortest = min(shortest, time.perf_counter() - start)
    return shortest
