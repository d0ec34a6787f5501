"""Memory in which the blocks of a kernel count themselves."""

from __future__ import annotations

import threading

from redlang.ir.types import U8
from redlang.runtime.driver import Driver
from redlang.runtime.memory import AnyArray, Library

COUNTERS = 1 << 14
"""Counters in a stream's first buffer."""
RESERVED = 1 << 20
"""Counters of a device that captures have, together."""
CAPTURES = 64
"""Captures whose counters are remembered; a longer one that is forgotten gets others."""
PAIR = 2
"""Counters that a launch takes at least: pairs of them are read as one."""


class StreamCounters:
    """Counters by stream: zero before and after every kernel that counts with them.

    Streams have counters of their own because their kernels may run at the same time. So has each
    stream of a capture, since replays may run beside the stream's own work: it gets some of a
    reserve for good. When that is used up, the graph clears fresh ones: 2 µs a launch.
    """

    def __init__(self, driver: Driver, library: Library, number: int) -> None:
        self.driver = driver
        self.library = library
        self.number = number
        self._buffers: dict[int, tuple[AnyArray, int, int]] = {}
        self._captures: dict[tuple[int, int], tuple[int, int]] = {}
        self._reserve: tuple[AnyArray, int, int] | None = None
        self._given = 0
        self._lock = threading.Lock()

    def get(self, stream: int, count: int) -> int:
        """Return the address of `count` counters that are zero, a multiple of 8 bytes."""
        count = -(-count // PAIR) * PAIR
        if self.driver.is_capturing(stream):
            return self._captured(stream, count)
        held = self._buffers.get(stream)
        if held is None or held[1] < count:
            with self._lock:
                held = self._fresh(stream, max(count, COUNTERS))
                self._buffers[stream] = held
                if self._reserve is None:
                    self._reserve = self._fresh(stream, RESERVED)
                    # Replays on other streams do not wait for this one; a first call may.
                    self.driver.wait(self.number, stream)
        return held[2]

    def _captured(self, stream: int, count: int) -> int:
        key = self.driver.capture(stream), stream
        with self._lock:
            address, most = self._captures.get(key, (0, 0))
            if count <= most:
                return address
            if self._reserve is not None and self._given + count <= RESERVED:
                address = self._reserve[2] + 4 * self._given
                self._given += count
                self._captures[key] = address, count
                if len(self._captures) > CAPTURES:
                    del self._captures[next(iter(self._captures))]
                return address
        return self._fresh(stream, count)[2]

    def _fresh(self, stream: int, count: int) -> tuple[AnyArray, int, int]:
        memory = self.library.empty((4 * count,), U8, f"cuda:{self.number}")
        address = self.library.memory(memory).address
        self.driver.clear(self.number, address, count, stream)
        return memory, count, address


_counters: dict[tuple[int, str, int], StreamCounters] = {}


def counters_of(driver: Driver, library: Library, number: int) -> StreamCounters:
    """Return the counters of a device."""
    key = (id(driver), library.name, number)
    return _counters.setdefault(key, StreamCounters(driver, library, number))
