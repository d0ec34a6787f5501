"""Time, error and the table.

All ways to one result take turns, so that a busy moment of the machine falls on each of them. A
turn is calls for a while, of which the last counts: threads of the way before, which wait busily
for a while, and pages that it gave back are nobody else's cost. The median counts, the spread is
shown beside it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import redlang
from redlang.bench.workloads import Workload

Array = NDArray[Any]
OWN = "redlang"
SEED = 20
ROUNDS = 9
LEAST_ROUNDS, BUDGET_S = 3, 20.0
"""A busy machine gets fewer rounds, but never less than these."""
SETTLE_S = 0.03
"""How long a way runs before a call of it counts: OpenMP's threads spin for some milliseconds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one way over the rounds: median, and the quartiles around it."""

    name: str
    median_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured for one workload.

    Attributes:
        error: Largest difference from the double-precision reference over the largest value,
            on the sampled rows.
        first_call_s: The first call of this process: derivation and compilation, or the cache.
        gigabytes_per_s: Inputs read once and results written once, over redlang's median; None
            where arithmetic is the limit.
    """

    workload: str
    error: float
    sweeps: int
    first_call_s: float
    gigabytes_per_s: float | None
    timings: tuple[Timing, ...]

    def ratio(self, peer: str) -> float | None:
        """Return the peer's time over redlang's; None if the peer did not run."""
        times = {timing.name: timing.median_ms for timing in self.timings}
        return times[peer] / times[OWN] if peer in times else None


def measure(workload: Workload, *, rounds: int = ROUNDS, peers: Sequence[str] = ()) -> Line:
    """Run one workload and its peers.

    Args:
        workload: What to run.
        rounds: How often each way runs, after one call to warm up.
        peers: Names of the peers to run; all that are installed if empty.
    """
    arrays = workload.inputs(np.random.default_rng(SEED))
    start = time.perf_counter()
    workload.kernel(*arrays)
    first_call = time.perf_counter() - start
    ways: dict[str, Callable[[], Any]] = {OWN: lambda: workload.kernel(*arrays)}
    for name, function in workload.peers.items():
        if (peers and name not in peers) or not _installed(name):
            continue
        given = _tensors(arrays) if name == "torch" else arrays
        ways[name] = _call(function, given)
    sample = workload.sample(arrays)
    timings = _take_turns(ways, rounds)
    own = timings[0].median_ms
    return Line(
        workload.name,
        _error(workload.kernel(*sample), workload.kernel.reference(*sample)),
        sum(len(sweeps) for sweeps in workload.kernel.sweeps),
        first_call,
        None if workload.bytes is None else workload.bytes / own / 1e6,
        timings,
    )


def table(lines: Sequence[Line]) -> str:
    """Return the measurements as text, one workload a line and a column for each peer that ran."""
    ran = {timing.name: None for line in lines for timing in line.timings if timing.name != OWN}
    rows = [["workload", "error", "sweeps", "GB/s", OWN, *ran]]
    for line in lines:
        own = line.timings[0]
        spread = (own.high_ms - own.low_ms) / 2
        cells = [line.workload, f"{line.error:.0e}", str(line.sweeps)]
        rate = "-" if line.gigabytes_per_s is None else f"{line.gigabytes_per_s:.1f}"
        cells += [rate, f"{own.median_ms:.2f} ms ±{spread:.2f}"]
        rows.append([*cells, *(_peer(line, name) for name in ran)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def write_json(path: Path, lines: Iterable[Line]) -> None:
    """Write the measurements and what they were taken on."""
    content = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "redlang": redlang.__version__,
            **{name: version(name) for name in ("numpy", "numba", "torch") if _installed(name)},
        },
        "lines": [asdict(line) for line in lines],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _peer(line: Line, name: str) -> str:
    ratio = line.ratio(name)
    if ratio is None:
        return "-"
    median = next(timing.median_ms for timing in line.timings if timing.name == name)
    return f"{median:.1f} ms ({ratio:.1f}x)"


def _take_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> tuple[Timing, ...]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    begin = time.perf_counter()
    for turn in range(rounds + 1):
        if turn > LEAST_ROUNDS and time.perf_counter() - begin > BUDGET_S:
            break
        for name, way in ways.items():
            alone = time.perf_counter() + SETTLE_S
            way()
            while time.perf_counter() < alone:
                way()
            start = time.perf_counter()
            way()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    timings = []
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        timings.append(Timing(name, statistics.median(values), quartiles[0], quartiles[2]))
    return tuple(timings)


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _tensors(arrays: tuple[Array, ...]) -> tuple[Any, ...]:
    torch = importlib.import_module("torch")
    return tuple(torch.from_numpy(array) for array in arrays)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _error(actual: Array, reference: Array) -> float:
    scale = float(np.abs(reference).max()) or 1.0
    return float(np.abs(actual.astype(np.float64) - reference).max()) / scale
