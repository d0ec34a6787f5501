"""The disk cache: whole entries or none, whoever writes, dies or scribbles."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.runtime import cache

PAYLOAD = b"compiled" * 1000


@pytest.fixture
def store(tmp_path):
    return cache.DiskCache(tmp_path)


def entry(store):
    (path,) = store.folder.glob("??/*.entry")
    return path


def test_returns_what_was_stored(store):
    key = cache.digest("program", "options")
    assert store.load(key) is None
    store.store(key, PAYLOAD)
    assert store.load(key) == PAYLOAD
    store.store(key, b"newer")
    assert store.load(key) == b"newer"
    store.drop(key)
    assert store.load(key) is None


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_share_a_digest(a, b):
    assert (cache.digest(*a) == cache.digest(*b)) == (a == b)


@pytest.mark.parametrize("length", [0, 1, 20, 47, 48, 100, len(PAYLOAD) + 40])
def test_a_truncated_entry_is_a_miss_and_goes(store, length):
    store.store("0" * 64, PAYLOAD)
    path = entry(store)
    path.write_bytes(path.read_bytes()[:length])
    assert store.load("0" * 64) is None
    assert not path.exists()


def test_a_value_comes_back_if_it_is_of_the_kind_asked_for(store):
    cache.keep(store, "0" * 64, (1, "two"))
    assert cache.unpickled(store, "0" * 64, tuple) == (1, "two")
    assert cache.unpickled(store, "0" * 64, list, tuple) == (1, "two")
    assert cache.unpickled(store, "0" * 64, list) is None
    assert store.load("0" * 64) is None


def test_a_value_nested_too_deep_is_not_kept(store):
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    cache.keep(store, "0" * 64, deep)
    assert cache.unpickled(store, "0" * 64, list) is None


def test_versions_name_every_module_and_package():
    found = cache.versions()
    assert any(line.startswith("runtime/cache.py ") for line in found)
    assert any(line.startswith("frontend/redlang.lark ") for line in found)
    assert any(line.startswith("numba 0.") for line in found)
    assert not any("__pycache__" in line for line in found)


def test_a_changed_byte_is_a_miss(store):
    store.store("0" * 64, PAYLOAD)
    data = bytearray(entry(store).read_bytes())
    data[-1] ^= 1
    entry(store).write_bytes(bytes(data))
    assert store.load("0" * 64) is None


def test_an_entry_under_another_key_is_a_miss(store):
    one, other = cache.digest("one"), cache.digest("other")
    store.store(one, b"one")
    store.store(other, b"other")
    store._path(store.folder, one).replace(store._path(store.folder, other))
    assert store.load(other) is None


def test_an_empty_payload_is_an_entry(store):
    store.store("0" * 64, b"")
    assert store.load("0" * 64) == b""


def test_a_folder_that_cannot_be_written_is_told_once_and_no_error(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = cache.DiskCache(blocked)
    for key in ("0" * 64, "1" * 64):
        store.store(key, PAYLOAD)
        assert store.load(key) is None
    (message,) = (record.message for record in caplog.records)
    assert message.startswith("kernels are not kept for other processes: ")


def test_without_a_folder_nothing_is_kept():
    store = cache.DiskCache(None)
    store.store("0" * 64, PAYLOAD)
    assert store.load("0" * 64) is None
    store.drop("0" * 64)


def test_keeps_within_its_bound_and_drops_what_was_not_used_for_longest(tmp_path):
    store = cache.DiskCache(tmp_path, limit_bytes=10_000)
    for number in range(4):
        store.store(f"{number:064}", b"x" * 2_400)
        os.utime(store._path(tmp_path, f"{number:064}"), (number, number))
    assert store.load(f"{0:064}") is not None  # renews its time
    store.store(f"{9:064}", b"x" * 2_400)
    kept = {number for number in (0, 1, 2, 3, 9) if store.load(f"{number:064}") is not None}
    assert kept == {0, 3, 9}
    assert sum(p.stat().st_size for p in tmp_path.glob("??/*")) <= 10_000


def test_clears_what_dead_writers_left(tmp_path):
    store = cache.DiskCache(tmp_path)
    store.store("0" * 64, PAYLOAD)
    old, young = tmp_path / "00" / "a.tmp", tmp_path / "00" / "b.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store.store("1" * 64, PAYLOAD)
    assert old.exists()  # the folder is not listed at every store
    cache.DiskCache(tmp_path).store("1" * 64, PAYLOAD)
    assert not old.exists()
    assert young.exists()


def test_the_environment_decides_where(monkeypatch, tmp_path):
    monkeypatch.setenv("REDLANG_CACHE_DIR", str(tmp_path / "here"))
    assert cache.disk().folder == tmp_path / "here"
    monkeypatch.setenv("REDLANG_CACHE_DIR", "")
    assert cache.disk().folder is None
    monkeypatch.delenv("REDLANG_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.disk().folder == tmp_path / "redlang"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.disk().folder == Path.home() / "Library" / "Caches" / "redlang"


def _write_forever(folder):
    store = cache.DiskCache(folder)
    while True:
        store.store("0" * 64, os.urandom(1) * 200_000)


def test_killed_writers_leave_whole_entries_only(tmp_path):
    context = multiprocessing.get_context("spawn")
    store = cache.DiskCache(tmp_path)
    writers = [context.Process(target=_write_forever, args=(tmp_path,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        deadline = time.monotonic() + 30
        while store.load("0" * 64) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        for writer in writers:
            time.sleep(0.05)
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            for _ in range(20):
                data = store.load("0" * 64)
                assert data is not None
                assert data == data[:1] * 200_000
    finally:
        for writer in writers:
            writer.kill()
            writer.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_waits_for_a_build():
    started, finish = threading.Event(), threading.Event()

    def build():
        with cache.BUILDING:
            started.set()
            finish.wait(10)

    thread = threading.Thread(target=build)
    thread.start()
    started.wait(10)
    threading.Timer(0.1, finish.set).start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if cache.BUILDING.acquire(timeout=5) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert cache.BUILDING.acquire(timeout=5)
    cache.BUILDING.release()
