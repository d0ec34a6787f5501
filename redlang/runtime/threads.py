"""redlang's own threads: a unit range of a compiled kernel, cut among the cores.

Compiled kernels release the GIL, so plain Python threads run them side by side. The caller works
too and takes pieces until none is left; a helper that comes late finds nothing to do. So a call
never waits for a free helper: any number of callers, calls inside calls and a pool without helpers
all finish. Which thread runs a piece changes nothing in its result.

Helpers start at the first call that is worth them and again in a child after a fork, where
threads do not live on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue

from redlang.errors import ArgumentError

Run = Callable[[int, int], object]

PIECES_PER_THREAD = 4
"""Pieces a thread, so that one slow core does not keep the others waiting."""


class _Job:
    """One call's pieces, and who still works on them."""

    __slots__ = ("_done", "_lock", "_next", "_open", "error", "pieces", "run")

    def __init__(self, run: Run, pieces: list[tuple[int, int]]) -> None:
        self.run = run
        self.pieces = pieces
        self.error: BaseException | None = None
        self._next = count()
        self._open = len(pieces)
        self._lock = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()

    def work(self) -> None:
        """Run pieces until none is left; after an error the rest is dropped."""
        pieces = self.pieces
        # `next` on a counter is one step of the interpreter: no two threads get the same number.
        while (number := next(self._next)) < len(pieces):
            try:
                if self.error is None:
                    self.run(*pieces[number])
            except BaseException as error:
                self.error = error
            with self._lock:
                self._open -= 1
                last = self._open == 0
            if last:
                self._done.release()

    def wait(self) -> None:
        """Return when every piece is finished."""
        self._done.acquire()


class Pool:
    """Helper threads; `threads` counts the caller too."""

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()

    def run(self, run: Run, units: int, minimum: int = 1) -> None:
        """Call `run(first, stop)` for ranges that together cover `range(units)`.

        Args:
            run: Does one range; it must not care about the order or the thread.
            units: How many.
            minimum: Units below which a range is not worth a thread of its own.

        Raises:
            BaseException: whatever `run` raised first.
        """
        pieces = min(self.threads * PIECES_PER_THREAD, units // max(1, minimum))
        if self.threads == 1 or pieces <= 1:
            if units > 0:
                run(0, units)
            return
        job = _Job(run, cut(units, pieces))
        helpers = min(self.threads, pieces) - 1
        self._start(helpers)
        for _ in range(helpers):
            self._jobs.put(job)
        job.work()
        job.wait()
        # A helper that comes too late holds the job for a while: let the arrays go now.
        job.run = _nothing
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Let the helpers end after the jobs at hand."""
        with self._lock:
            for _ in range(self._started):
                self._jobs.put(None)
            self._started = 0

    def _start(self, helpers: int) -> None:
        if self._started >= helpers:
            return
        with self._lock:
            while self._started < helpers:
                name = f"redlang-{self._started}"
                # A daemon: an idle helper must not keep a program from ending.
                threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()
                self._started += 1


def _nothing(first: int, stop: int) -> None:
    del first, stop


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.work()
        # The queue's next job may be long in coming: keep nothing of this one alive.
        del job


def cut(units: int, pieces: int) -> list[tuple[int, int]]:
    """Return `pieces` ranges of nearly equal length that cover `range(units)` in order."""
    return [(units * i // pieces, units * (i + 1) // pieces) for i in range(pieces)]


def thread_count() -> int:
    """Return the number of threads a call may use.

    `REDLANG_NUM_THREADS` decides, else the CPUs that this process may run on.

    Raises:
        ArgumentError: The variable is no whole number from 1 on.
    """
    wish = os.environ.get("REDLANG_NUM_THREADS", "").strip()
    if wish:
        if wish.isdecimal() and int(wish) > 0:
            return int(wish)
        raise ArgumentError(
            f"REDLANG_NUM_THREADS={wish!r} in the environment",
            hint="a whole number from 1 on, or nothing for all CPUs that this process may use",
        )
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_pool: Pool | None = None


def pool() -> Pool:
    """Return this process's pool."""
    global _pool
    if _pool is None:
        _pool = Pool(thread_count())
    return _pool


def set_threads(threads: int | None) -> None:
    """Use `threads` from now on, `None` for the number of `thread_count`."""
    global _pool
    old, _pool = _pool, Pool(threads if threads is not None else thread_count())
    if old is not None:
        old.close()


def _forget() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
