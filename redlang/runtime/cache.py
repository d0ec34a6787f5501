"""Results of compiling, kept on disk and found again by what they were made from.

A key is a digest of everything that matters: the program, options, versions, the processor. An
entry is written beside its place and moved there in one step, and carries a digest of itself, so a
reader sees a whole entry or none, whoever else writes, dies or fills the disk meanwhile. A cache
never fails a call: what cannot be read is a miss, what cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TypeVar

Kept = TypeVar("Kept")

logger = logging.getLogger("redlang.cache")

FORMAT = b"redlang-cache-1\n"
LIMIT_BYTES = 1 << 30
"""Size that the folder may reach before the entries not used for longest are dropped."""

SUFFIX = ".entry"
TOUCH_AFTER_S = 3600.0
"""An entry's time of use is renewed no more often than this."""

LEFTOVER_AFTER_S = 3600.0
"""Age at which a temporary file must be of a process that died."""
LISTED_AFTER = 64
"""The folder is listed at the first store, and when this part of its limit was stored since."""

BUILDING = threading.RLock()
"""Held while a kernel is built: compilers and provers are not made for several threads at once."""

if hasattr(os, "register_at_fork"):
    # A child of a process whose other thread is compiling would wait for that thread's locks
    # forever; so a fork waits for the build instead.
    os.register_at_fork(
        before=BUILDING.acquire, after_in_parent=BUILDING.release, after_in_child=BUILDING.release
    )


def digest(*parts: str | bytes) -> str:
    """Return a key made of `parts`; no two lists of parts share one."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def default_folder() -> Path | None:
    """Return where entries go: `REDLANG_CACHE_DIR`, nowhere if that is empty, else the platform's.

    The platform's places are `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, and
    `%LOCALAPPDATA%`.
    """
    chosen = os.environ.get("REDLANG_CACHE_DIR")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen.strip() else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "redlang" / "Cache"
        )
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "redlang"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "redlang"


class DiskCache:
    """Entries in one folder, shared by any number of processes and threads."""

    def __init__(self, folder: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        """Use `folder`, which need not exist; None stores nothing."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._unlisted_bytes = limit_bytes
        self._has_told = False

    def load(self, key: str) -> bytes | None:
        """Return the entry of `key`; None if there is none, or none that is whole."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = _unwrap(key, data)
        if payload is None:
            logger.warning("dropped a damaged cache entry: %s", path)
            _remove(path)
            return None
        _touch(path)
        return payload

    def store(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`, whole or not at all."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        temporary = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(_wrap(key, payload))
            os.replace(temporary, path)  # noqa: PTH105  (a name from mkstemp)
            self._unlisted_bytes += len(payload)
            if self._unlisted_bytes >= self.limit_bytes // LISTED_AFTER:
                self._unlisted_bytes = 0
                self._prune(self.folder)
        except OSError as error:
            level = logging.INFO if self._has_told else logging.WARNING
            text = (
                "kernels are not kept for other processes: %s; REDLANG_CACHE_DIR may name a folder"
            )
            logger.log(level, text, error)
            self._has_told = True
            if temporary is not None:
                _remove(Path(temporary))

    def drop(self, key: str) -> None:
        """Forget the entry of `key`, because what it holds cannot be used."""
        if self.folder is not None:
            _remove(self._path(self.folder, key))

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / (key[2:] + SUFFIX)

    def _prune(self, folder: Path) -> None:
        """Drop leftovers, and the entries not used for longest until a fifth is free again."""
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for path in folder.glob("??/*"):
            try:
                status = path.stat()
            except OSError:
                continue
            if path.suffix == ".tmp" and now - status.st_mtime > LEFTOVER_AFTER_S:
                _remove(path)
            elif path.suffix == SUFFIX:
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes * 4 // 5:
                break
            _remove(path)
            total -= size


def _wrap(key: str, payload: bytes) -> bytes:
    """Return an entry's bytes; one that stands under another key is damaged too."""
    return FORMAT + hashlib.sha256(key.encode() + payload).digest() + payload


def _unwrap(key: str, data: bytes) -> bytes | None:
    start = len(FORMAT) + hashlib.sha256().digest_size
    payload = data[start:]
    return payload if data[:start] == _wrap(key, payload)[:start] else None


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > TOUCH_AFTER_S:
            os.utime(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def disk() -> DiskCache:
    """Return the cache that the environment asks for now."""
    return _at(default_folder())


@functools.lru_cache(maxsize=8)
def _at(folder: Path | None) -> DiskCache:
    return DiskCache(folder)


def keep(store: DiskCache, key: str, value: object) -> None:
    """Keep a value under `key`; one that is nested too deep for a pickle is not kept."""
    with contextlib.suppress(RecursionError):
        store.store(key, pickle.dumps(value))


def unpickled(store: DiskCache, key: str, *kinds: type[Kept]) -> Kept | None:
    """Return a kept value of one of `kinds`; None if there is none that can be read."""
    payload = store.load(key)
    if payload is None:
        return None
    try:
        value = pickle.loads(payload)
    except Exception as error:
        logger.warning("dropped a cache entry that cannot be read: %s", error)
        value = None
    if isinstance(value, kinds):
        return value
    store.drop(key)
    return None


@functools.cache
def versions() -> tuple[str, ...]:
    """Return what entries depend on besides their input: redlang's own files, and packages."""
    folder = Path(__file__).parent.parent
    files = sorted(_files(str(folder)))
    packages = (f"{name} {_version(name)}" for name in ("numpy", "sympy", "numba", "llvmlite"))
    return (sys.version, *packages, *files)


def _files(folder: str, inside: str = "") -> Iterator[str]:
    """Yield name, size and time of each module in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path, f"{inside}{entry.name}/")
            elif entry.name.endswith((".py", ".lark")):
                status = entry.stat()
                yield f"{inside}{entry.name} {status.st_size} {status.st_mtime_ns}"


def _version(name: str) -> str:
    """Return a package's version; one that is loaded knows it at once."""
    known = getattr(sys.modules.get(name), "__version__", None)
    return known if isinstance(known, str) else metadata.version(name)
