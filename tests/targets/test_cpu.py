import ctypes
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from redlang.errors import InternalError
from redlang.targets import cpu

TEXT = """
def double(addresses, ints, floats, lo, hi, scratch):
    x = pointer("f64", "x", addresses[0])
    for i in range(lo, hi):
        store(x, i, load(x, i) * 2.0 + floats[0])


def count(addresses, ints, floats, lo, hi, scratch):
    x = pointer("f64", "x", addresses[0])
    for i in range(lo, hi):
        store(x, i, f64(i * ints[0]))
"""
ENTRIES = ("double", "count")


def call(module, entry, x, *, whole=0, shift=0.0):
    addresses = (ctypes.c_uint64 * 1)(x.ctypes.data)
    ints, floats = (ctypes.c_int64 * 1)(whole), (ctypes.c_double * 1)(shift)
    module.functions[entry](addresses, ints, floats, 0, x.size, 0)


def test_entries_of_one_text_are_called_by_name():
    module = cpu.load(cpu.build(TEXT, ENTRIES))
    x = np.zeros(5)
    call(module, "count", x, whole=3)
    call(module, "double", x, shift=1.0)
    np.testing.assert_array_equal(x, [1, 7, 13, 19, 25])
    assert module.address("count") != module.address("double") != 0


def test_object_code_survives_pickling():
    built = pickle.loads(pickle.dumps(cpu.build(TEXT, ENTRIES)))
    first, second = cpu.load(built), cpu.load(built)
    x = np.zeros(3)
    for module in (first, second):
        call(module, "double", x, shift=1.0)
    np.testing.assert_array_equal(x, [3, 3, 3])


def test_a_cached_kernel_runs_without_the_compiler(tmp_path):
    path = tmp_path / "code"
    path.write_bytes(pickle.dumps(cpu.build(TEXT, ENTRIES)))
    script = f"""
import ctypes, pickle, sys
from pathlib import Path
from redlang.targets import cpu
module = cpu.load(pickle.loads(Path({str(path)!r}).read_bytes()))
x = (ctypes.c_double * 4)()
addresses, ints = (ctypes.c_uint64 * 1)(ctypes.addressof(x)), (ctypes.c_int64 * 1)(5)
module.functions["count"](addresses, ints, 0, 0, 4, 0)
assert list(x) == [0, 5, 10, 15], list(x)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_text_that_does_not_compile_is_a_fault_of_ours_and_shown():
    text = "def k(addresses, ints, floats, lo, hi, scratch):\n    store(nowhere, 0, 0)\n"
    with pytest.raises(InternalError, match="store\\(nowhere, 0, 0\\)"):
        cpu.build(text, ("k",))


def test_threads_may_build_at_once():
    texts = [TEXT.replace("2.0", f"{i}.0") for i in range(4)]
    results: dict[int, float] = {}

    def work(i):
        module = cpu.load(cpu.build(texts[i], ENTRIES))
        x = np.ones(1)
        call(module, "double", x)
        results[i] = x[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: float(i) for i in range(4)}


def test_a_call_lets_other_threads_run():
    module = cpu.load(cpu.build(TEXT, ENTRIES))
    x = np.zeros(20_000_000)
    done = threading.Event()

    def work():
        for _ in range(5):
            call(module, "double", x)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.0005)
    thread.join()
    assert turns > 5


def test_the_fingerprint_names_processor_and_compiler():
    assert cpu.fingerprint() == cpu.fingerprint()
    assert any("llvm" in part for part in cpu.fingerprint())
