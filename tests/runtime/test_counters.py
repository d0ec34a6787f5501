"""Counters of kernels whose blocks share a unit: zero, and nobody else's."""

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redlang.runtime import counters
from redlang.runtime.counters import StreamCounters


class FakeDriver:
    """Says which streams are captured, and notes what is cleared and waited for."""

    def __init__(self):
        self.captured = set()
        self.number = 1
        self.cleared = []
        self.waited = []

    def is_capturing(self, stream):
        return stream in self.captured

    def capture(self, stream):
        assert stream in self.captured
        return self.number

    def clear(self, number, address, count, stream):
        del number
        self.cleared.append((address, count, stream))

    def wait(self, number, stream):
        del number
        self.waited.append(stream)


class FakeLibrary:
    """Hands out addresses, far apart."""

    def __init__(self):
        self.next = 1 << 20

    def empty(self, shape, dtype, device):
        del shape, dtype, device
        self.next += 1 << 20
        return SimpleNamespace(address=self.next)

    def memory(self, array):
        return array


@pytest.fixture
def made():
    driver = FakeDriver()
    return StreamCounters(cast(Any, driver), cast(Any, FakeLibrary()), 0), driver


def test_a_stream_keeps_its_counters(made):
    own, driver = made
    first = own.get(7, 10)
    assert own.get(7, 20) == first
    assert own.get(8, 10) != first
    assert (first, counters.COUNTERS, 7) in driver.cleared


def test_captured_launches_have_counters_of_their_own_that_no_graph_clears(made):
    own, driver = made
    own.get(7, 1)
    before = list(driver.cleared)
    assert driver.waited == [7]
    driver.captured.add(7)
    found = []
    for driver.number in range(5):
        found.append(own.get(7, 3))
        # Launches of one capture run one after another.
        assert own.get(7, 4) == found[-1]
    assert [b - a for a, b in itertools.pairwise(found)] == [16] * 4
    assert driver.cleared == before
    driver.captured.add(8)
    assert own.get(8, 4) == found[-1] + 16
    assert own.get(7, 5) == found[-1] + 32
    driver.captured.clear()
    assert own.get(7, 1) not in range(found[0], found[-1] + 16)


def test_a_graph_clears_its_counters_where_the_reserve_is_used_up(made):
    own, driver = made
    own.get(7, 1)
    driver.captured.add(7)
    own.get(7, counters.RESERVED - 2)
    before = len(driver.cleared)
    driver.number = 2
    own.get(7, 1)
    driver.number = 3
    assert len(driver.cleared) == before
    address = own.get(7, 2)
    assert driver.cleared[before:] == [(address, 2, 7)]


def test_a_cold_capture_gets_fresh_counters(made):
    own, driver = made
    driver.captured.add(7)
    address = own.get(7, 2)
    assert driver.cleared == [(address, 2, 7)]
