"""Many threads, forks and processes on one kernel and one cache: no crash, no wrong value."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import redlang
from redlang.runtime import threads

f32 = np.float32

PROGRAM = textwrap.dedent(
    """
    import sys
    import numpy as np
    import redlang

    FACTOR = 3

    @redlang.kernel
    def weighted(x: "m n") -> "m":
        p = exp(x - max[n](x))
        return sum[n](p * n) / sum[n](p) * FACTOR

    x = np.tile(np.arange(7, dtype=np.float32), (5, 1)) * 0
    value = weighted(x)
    assert value.tolist() == [9.0] * 5, value
    info = weighted.cache_info()
    print(info.compilations, info.loaded)
    """
)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(program, cache):
    return subprocess.Popen(
        [sys.executable, program],
        env={**os.environ, "REDLANG_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    compiled, loaded = map(int, out.split())
    return compiled, loaded


def test_processes_may_be_killed_at_any_time(program, tmp_path):
    cache = tmp_path / "cache"
    running = [start(program, cache) for _ in range(3)]
    for process, delay in zip(running, (0.4, 0.5, 0.6), strict=True):
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finish(start(program, cache))


def test_a_second_process_compiles_nothing_unless_entries_are_damaged(program, tmp_path):
    cache = tmp_path / "cache"
    assert finish(start(program, cache)) == (1, 0)
    assert finish(start(program, cache)) == (0, 1)
    entries = sorted(cache.glob("??/*.entry"))
    assert len(entries) >= 3
    for i, path in enumerate(entries):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * i // len(entries)])
    assert finish(start(program, cache)) == (1, 0)


def test_a_cache_that_cannot_be_written_is_no_error(program, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert finish(start(program, blocked)) == (1, 0)


def test_sixteen_threads_meet_a_cold_kernel():
    kernel = redlang.compile('def f(x: "m n", k: int) -> "m": return sum[n](x * 1.5) * k')
    barrier, results = threading.Barrier(16), {}

    def work(number):
        x = np.full((number + 1, 8), 2, f32 if number % 2 else np.float64)
        barrier.wait()
        results[number] = [kernel(x, turn).tolist() for turn in range(5)]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
    for number in range(16):
        expected = [[24.0 * turn] * (number + 1) for turn in range(5)]
        assert results[number] == expected
    info = kernel.cache_info()
    assert info.compilations + info.loaded <= 4


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setenv("REDLANG_NUM_THREADS", "2")
    threads.set_threads(None)
    yield
    monkeypatch.undo()
    threads.set_threads(None)


LARGE = redlang.compile('def large(x: "m n") -> "m n": return exp(x - max[n](x))')
LONG = redlang.compile('def long(x: "m n") -> "m": return sum[n](exp(x))')


@pytest.mark.usefixtures("two_threads")
def test_large_calls_from_several_threads_are_right():
    x = np.random.default_rng(1).normal(size=(300, 1000)).astype(f32)
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    wrong: list[int] = []

    def work():
        wrong.extend(i for i in range(10) if not np.allclose(LARGE(x), expected, rtol=1e-5))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not wrong


@pytest.mark.usefixtures("two_threads")
def test_results_are_the_same_bits_for_any_number_of_threads():
    x = np.random.default_rng(2).normal(size=(2, 400_000)).astype(f32)
    two = LONG(x)
    for count in (1, 3, 7):
        threads.set_threads(count)
        for _ in range(3):
            np.testing.assert_array_equal(LONG(x), two)
    np.testing.assert_allclose(two, np.exp(x.astype(float)).sum(axis=1), rtol=1e-6)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_calls_and_compiles():
    x = np.random.default_rng(3).normal(size=(200, 1000)).astype(f32)
    expected = LARGE(x)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child():
        fresh = redlang.compile('def fresh(x: "m n") -> "m": return min[n](x * 3.25)')
        answers.put(bool((LARGE(x) == expected).all()))
        answers.put(bool((fresh(x) == (x * f32(3.25)).min(axis=1)).all()))

    process = context.Process(target=child)
    process.start()
    process.join(60)
    alive = process.is_alive()
    process.kill()
    assert not alive
    assert answers.get()
    assert answers.get()
