"""Caches, threads, processes and the number of compilations."""

import multiprocessing
import os
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import redlang
from redlang import std

f32 = np.float32

PROGRAM = textwrap.dedent(
    """
    import sys
    import numpy as np
    import redlang
    from helper import amount

    @redlang.kernel
    def shifted(x: "m n") -> "m":
        return sum[n](amount(x))

    x = np.ones((3, 5), np.float32)
    print(shifted(x)[0])
    """
)
HELPER = "import redlang\n\n@redlang.function\ndef amount(x):\n    return x + {}\n"


@redlang.kernel
def softmax(x: "m n") -> "m n":
    return std.softmax[n](x)


@redlang.kernel
def two_results(x: "m n") -> ("m", "m"):
    return std.logsumexp[n](x), std.var[n](x)


def run(folder, cache):
    """Run PROGRAM in a new process with its own cache folder; return what it printed."""
    root = str(Path(redlang.__file__).parents[1])
    environment = {**os.environ, "REDLANG_CACHE_DIR": str(cache), "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text(HELPER.format(1))
    return tmp_path


def test_an_edited_helper_in_another_file_is_seen(project):  # C118
    cache = project / "cache"
    assert run(project, cache) == 10
    (project / "helper.py").write_text(HELPER.format(2))
    assert run(project, cache) == 15


def test_a_damaged_cache_is_a_miss(project):  # C117
    cache = project / "cache"
    assert run(project, cache) == 10
    entries = [path for path in cache.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:100])
    assert run(project, cache) == 10


def test_processes_race_for_a_cold_cache(project):  # C117
    cache = project / "cache"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: run(project, cache), range(4))) == [10] * 4


def test_threads_compile_and_call_together():  # C119, C121
    kernels = [
        redlang.compile(f'def f{k}(x: "m n") -> "m":\n    return sum[n](x * {k})\n')
        for k in range(4)
    ]
    start, wrong = threading.Barrier(16), []

    def work(number):
        start.wait()
        for turn in range(10):
            k = (number + turn) % 4
            x = np.full((number + 1, turn + 3), 2, f32)
            if not (kernels[k](x) == 2 * k * (turn + 3)).all():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_call():  # C122
    x = np.ones((512, 4096), f32)
    expected = softmax(x)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child():
        answers.put(bool((softmax(x) == expected).all()))

    process = context.Process(target=child)
    process.start()
    process.join(30)
    alive = process.is_alive()
    process.kill()
    assert not alive
    assert answers.get()


def test_a_new_length_does_not_recompile():  # C125, C126
    kernel = redlang.compile('def f(x: "n") -> "n":\n    return x - max[n](x)\n')
    for n in range(1, 301):
        kernel(np.zeros(n, f32))
    assert kernel.cache_info().compilations <= 3


def test_a_warm_call_is_cheap():  # C127
    x = np.ones((4, 64), f32)
    softmax(x)
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        softmax(x)
        times.append(time.perf_counter() - start)
    # The target is 25 us; a shared machine gets the benefit of the doubt.
    assert statistics.median(times) < 100e-6


def test_compile_time_grows_gently_with_the_length_of_a_cascade():  # C129
    def seconds(stages):
        lines = ["    r0 = max[n](x)"]
        lines += [f"    r{k} = sum[n](exp(x - r0) * {k}.0) + r{k - 1}" for k in range(1, stages)]
        text = 'def f(x: "m n") -> "m":\n' + "\n".join(lines) + f"\n    return r{stages - 1}\n"
        kernel = redlang.compile(text)
        start = time.perf_counter()
        kernel(np.ones((2, 8), f32))
        return time.perf_counter() - start

    short, long = seconds(4), seconds(16)
    assert long < 16 * short + 5


def test_two_results_compile_in_time():  # C130
    start = time.perf_counter()
    two_results(np.ones((2, 8), f32))
    assert time.perf_counter() - start < 10


def test_the_prover_has_a_budget():  # C131
    text = textwrap.dedent(
        """
        def deep(x: "n") -> "":
            a = max[n](x)
            b = abs(maximum(abs(x - a), abs(where(x > 0, x * a, a) - 1)))
            c = abs(maximum(abs(b * a), abs(where(b > x, maximum(b, a), a - x))))
            return sum[n](abs(maximum(c - a, where(c > 1, exp(c * a), sigmoid(a - c)))))
        """
    )
    kernel = redlang.compile(text)
    start = time.perf_counter()
    x = np.array([0.5, -1, 0.25], f32)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), rtol=1e-5)
    assert time.perf_counter() - start < 20
