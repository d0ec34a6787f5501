"""The thread pool: every unit once, in any nesting, from any thread, after a fork."""

import os
import threading
import time
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.errors import ArgumentError
from redlang.runtime import threads


@given(st.integers(0, 200), st.integers(1, 40))
def test_pieces_cover_every_unit_once(units, pieces):
    ranges = threads.cut(units, pieces)
    assert [u for first, stop in ranges for u in range(first, stop)] == list(range(units))


@pytest.fixture
def pool():
    pool = threads.Pool(4)
    yield pool
    pool.close()


def collect(pool, units, minimum=1):
    seen: list[int] = []
    pool.run(lambda first, stop: seen.extend(range(first, stop)), units, minimum)
    return sorted(seen)


@pytest.mark.parametrize("units", [0, 1, 2, 3, 17, 1000])
def test_runs_every_unit_once(pool, units):
    assert collect(pool, units) == list(range(units))


def test_small_calls_run_inline(pool):
    callers = set()
    pool.run(lambda first, stop: callers.add((threading.get_ident(), first, stop)), 30, minimum=20)
    assert callers == {(threading.get_ident(), 0, 30)}
    assert pool._started == 0


def test_several_threads_share_the_work(pool):
    barrier = threading.Barrier(4)
    # Passes only if four threads stand in it at once.
    pool.run(lambda first, stop: barrier.wait(10) if first < 4 else None, 16)


def test_an_error_reaches_the_caller_and_the_pool_lives_on(pool):
    def fail(first, stop):
        if first <= 50 < stop:
            raise ZeroDivisionError("unit 50")

    with pytest.raises(ZeroDivisionError, match="unit 50"):
        pool.run(fail, 100)
    assert collect(pool, 100) == list(range(100))


def test_calls_inside_calls_finish(pool):
    counts: list[int] = []

    def outer(first, stop):
        counts.extend(len(collect(pool, 20)) for _ in range(first, stop))

    pool.run(outer, 40)
    assert counts == [20] * 40


def test_many_callers_finish(pool):
    results: list[int] = []
    callers = [
        threading.Thread(target=lambda: results.extend(len(collect(pool, 37)) for _ in range(50)))
        for _ in range(16)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert results == [37] * 800


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_works_again_in_a_child_after_a_fork(monkeypatch):
    monkeypatch.setenv("REDLANG_NUM_THREADS", "3")
    threads.set_threads(None)
    assert len(collect(threads.pool(), 100)) == 100
    pid = os.fork()
    if pid == 0:
        # A helper must be there: this thread alone never gets through the barrier.
        barrier = threading.Barrier(2)
        try:
            threads.pool().run(lambda first, stop: barrier.wait(5), 2)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    threads.set_threads(None)


def test_a_finished_call_keeps_nothing_alive(pool):
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    pool.run(lambda first, stop, big=big: None, 100)
    del big
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone() is None


@pytest.mark.parametrize(("wish", "threads_used"), [("3", 3), ("1", 1)])
def test_the_environment_names_the_number(monkeypatch, wish, threads_used):
    monkeypatch.setenv("REDLANG_NUM_THREADS", wish)
    assert threads.thread_count() == threads_used


@pytest.mark.parametrize("wish", ["0", "many", "-2"])
def test_what_is_no_number_is_told(monkeypatch, wish):
    monkeypatch.setenv("REDLANG_NUM_THREADS", wish)
    with pytest.raises(ArgumentError, match=f"REDLANG_NUM_THREADS='{wish}'"):
        threads.thread_count()


def test_without_a_number_the_affinity_decides(monkeypatch):
    monkeypatch.setenv("REDLANG_NUM_THREADS", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)
    assert threads.thread_count() == 3
