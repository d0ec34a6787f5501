"""The budget stops what takes too long, in any thread, and leaves alone what does not."""

import threading
import time

import pytest

from redlang.algebra.budget import OutOfBudgetError, within


def spin():
    while True:
        time.sleep(0.001)


def test_gives_back_what_the_work_returns():
    assert within(lambda: 6 * 7) == 42


def test_stops_work_that_never_ends():
    before = time.perf_counter()
    with pytest.raises(OutOfBudgetError, match="more than"):
        within(spin, seconds=0.05)
    assert time.perf_counter() - before < 5
    for _ in range(200):
        if not any(t.name == "redlang-algebra" for t in threading.enumerate()):
            break
        time.sleep(0.01)
    assert not any(t.name == "redlang-algebra" for t in threading.enumerate())


def test_does_not_begin_what_is_too_large():
    with pytest.raises(OutOfBudgetError, match="nodes"):
        within(lambda: pytest.fail("began"), size=10**9)


def test_hands_on_errors():
    def fail():
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        within(fail)


def test_works_in_a_thread_that_is_not_the_main_one():
    outcomes = []

    def run():
        try:
            within(spin, seconds=0.05)
        except OutOfBudgetError:
            outcomes.append("stopped")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert outcomes == ["stopped"]
