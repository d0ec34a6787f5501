"""`tune=True` on a GPU: the first call of a class measures the model's best plans.

The call's own arrays serve, and its results come from the plan that won. What was measured is kept
on disk for the program, the class of its extents and layout, and the device: whoever calls the
program for that class runs the winner from then on, tuned or not.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from redlang.runtime.cache import digest, disk, versions
from redlang.schedule.search import Choice, Measured, Ranked

if TYPE_CHECKING:
    from redlang.runtime.driver import Driver

MOST = 8
"""Plans of a nest that are measured."""
BUDGET_S = 20.0
"""Seconds that measuring a call may take, compiling included; `REDLANG_TUNE_SECONDS` changes it."""
LAUNCHES = 16
ROUNDS = 5
DELAY_BYTES = 1 << 28
"""What is written before launches are timed, so that all of them wait in the queue meanwhile."""

Run: TypeAlias = Callable[..., None]
Time: TypeAlias = Callable[[Run], float]


@dataclass(slots=True)
class Records:
    """What has been measured, by class: for each nest, plans with their times, the best first."""

    known: dict[str, tuple[tuple[Measured, ...], ...]] = field(default_factory=dict)

    def get(self, key: str) -> tuple[tuple[Measured, ...], ...] | None:
        """Return what was measured for a class, from memory or from disk."""
        if key not in self.known:
            payload = disk().load(key)
            found = None if payload is None else _read(payload)
            if found is None:
                return None
            self.known[key] = found
        return self.known[key]

    def set(self, key: str, measured: tuple[tuple[Measured, ...], ...]) -> None:
        """Keep what was measured for a class in memory and on disk."""
        self.known[key] = measured
        disk().store(key, pickle.dumps(measured))


RECORDS = Records()
"""The records of this process."""


def _read(payload: bytes) -> tuple[tuple[Measured, ...], ...] | None:
    try:
        found = pickle.loads(payload)
    except Exception:  # a damaged entry is a miss
        return None
    whole = isinstance(found, tuple) and all(
        isinstance(m, Measured) for nest in found for m in nest
    )
    return found if whole else None


def record_key(program: str, options: str, choice: Choice, device: str) -> str:
    """Return the name under which measurements of a class are kept."""
    layout = (tuple(choice.layout.unit.items()), tuple(choice.layout.alignment.items()))
    parts = (program, options, choice.form, repr(choice.shape), repr(layout), device)
    return digest("cuda times", *parts, *versions())


def name_of(ranked: Ranked) -> str:
    """Return what tells a plan from the others of its nest, in any process."""
    parts = (
        ([s.stages for s in p.nest.sweeps], p.plan, p.threads, p.across, p.matrix, p.classes)
        for p in ranked.candidate.parts
    )
    return digest(ranked.candidate.family, *map(repr, parts))


def reordered(choice: Choice, key: str) -> Choice:
    """Return a choice with what was measured best in front, if anything was measured."""
    record = RECORDS.get(key)
    if record is None or len(record) != len(choice.ranked):
        return choice
    ranked = []
    for options, measured in zip(choice.ranked, record, strict=True):
        names = {name_of(r): r for r in options} if measured else {}
        first = [names[m.name] for m in measured[:1] if m.name in names]
        ranked.append((*first, *(r for r in options if r not in first)))
    return replace(choice, ranked=tuple(ranked), measured=record)


def measure(
    name: str, choice: Choice, make: Callable[[list[Ranked]], Run | None], time_of: Time
) -> tuple[tuple[Measured, ...], ...]:
    """Measure plans nest by nest, each beside the best that is known of the others.

    Args:
        name: The program's, for the progress bar.
        choice: The plans, best first by the model.
        make: Returns a run of chosen plans, or None where the compiler gives one up.
        time_of: Returns a run's time in µs.
    """
    until = time.perf_counter() + float(os.environ.get("REDLANG_TUNE_SECONDS") or BUDGET_S)
    best = [options[0] for options in choice.ranked]
    total = sum(min(MOST, len(options)) for options in choice.ranked if len(options) > 1)
    bar = Bar(f"tuning {name}", total)
    record = []
    for number, options in enumerate(choice.ranked):
        found: list[tuple[float, Ranked]] = []
        for ranked in options[:MOST] if len(options) > 1 else ():
            if found and time.perf_counter() > until:
                break
            run = make([*best[:number], ranked, *best[number + 1 :]])
            if run is not None:
                found.append((time_of(run), ranked))
            bar.step(min((t for t, _ in found), default=0.0))
        # Of equals the one that the model prefers.
        found.sort(key=lambda pair: pair[0])
        if found:
            best[number] = found[0][1]
        record.append(tuple(Measured(name_of(r), r.candidate.family, t) for t, r in found))
    bar.close()
    return tuple(record)


class Bar:
    """A progress bar on standard error, where that is a terminal."""

    WIDTH = 24

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.shown = total > 0 and sys.stderr.isatty()

    def step(self, best: float) -> None:
        """Show one more plan as measured."""
        self.done += 1
        if self.shown:
            full = self.WIDTH * self.done // self.total
            line = "#" * full + "-" * (self.WIDTH - full)
            text = f"\r{self.title} [{line}] {self.done}/{self.total}, best {best:.1f} µs "
            print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self.shown:
            print(file=sys.stderr)


@contextmanager
def stopwatch(
    driver: Driver, device: int, stream: int, scratch: int, arguments: Sequence[object]
) -> Iterator[Time]:
    """Yield a function that returns the time of a run on `arguments` in µs.

    Args:
        driver: The CUDA driver.
        device: The device's number.
        stream: Where the launches go.
        scratch: The address of `DELAY_BYTES` that may be written, or 0.
        arguments: Of the run, after the stream.
    """
    start, stop = ctypes.c_void_p(), ctypes.c_void_p()
    with driver.current(device):
        for event in (start, stop):
            driver.call("cuEventCreate", ctypes.byref(event), 0)

    def once(run: Run) -> float:
        if scratch:
            for _ in range(4):
                driver.clear(device, scratch, DELAY_BYTES // 4, stream)
        with driver.current(device):
            driver.call("cuEventRecord", start, ctypes.c_void_p(stream))
            for _ in range(LAUNCHES):
                run(stream, *arguments)
            driver.call("cuEventRecord", stop, ctypes.c_void_p(stream))
            driver.call("cuEventSynchronize", stop)
            spent = ctypes.c_float()
            driver.call("cuEventElapsedTime", ctypes.byref(spent), start, stop)
        return 1e3 * spent.value / LAUNCHES

    def time_of(run: Run) -> float:
        run(stream, *arguments)
        return min(once(run) for _ in range(ROUNDS))

    try:
        yield time_of
    finally:
        with driver.current(device):
            for event in (start, stop):
                driver.call("cuEventDestroy_v2", event)
