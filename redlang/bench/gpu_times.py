"""Times on a GPU: graphs of calls, replayed; single calls; the host's share; a copy beside them."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import redlang

REPLAYS, PLACES = 4, 3
FLUSHED, SINGLES = 1 << 28, 23
"""Bytes that are written before a single call, and how many of those there are."""
CALLS = 20
"""Calls that a graph holds, at least."""
REST = 0.25
"""Seconds of rest before matrix work: after some 50 ms of it a card is held to its power limit."""


def _torch() -> Any:  # noqa: ANN401  (a module, optional)
    return importlib.import_module("torch")


def graph_us(calls: Sequence[Callable[[], object]], least: int = CALLS, rest: float = 0.0) -> float:
    """Return the time of one call in µs: a graph of all calls in turn, replayed."""
    return graphs_us({"": calls}, least, rest)[""]


def graphs_us(
    ways: Mapping[str, Sequence[Callable[[], object]]], least: int = CALLS, rest: float = 0.0
) -> dict[str, float]:
    """Return the time of one call of each way in µs; their graphs are replayed in turns.

    What comes first finds the device cooler and slower than what comes later, and where results lie
    matters too, by up to 4 %: each way has several graphs, whose results lie apart, and the results
    of all ways lie in the same places. The device rests for `rest` seconds before each replay.
    """
    t = _torch()
    pools = [t.cuda.graph_pool_handle() for _ in range(PLACES)]
    graphs = [(name, *_graph(ways[name], least, pool)) for pool in pools for name in ways]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(REPLAYS + 1):
        for name, graph, count in graphs:
            time.sleep(rest)
            start, stop = (t.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            if turn:
                times[name].append(1e3 * float(start.elapsed_time(stop)) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def _graph(calls: Sequence[Callable[[], object]], least: int, pool: object) -> tuple[Any, int]:
    """Return a graph of some rounds of calls, and how many calls it has.

    Args:
        calls: A round.
        least: How many calls it has at least.
        pool: Where its results lie, like those of other graphs of this pool.
    """
    t = _torch()
    side = t.cuda.Stream()
    side.wait_stream(t.cuda.current_stream())
    with t.cuda.stream(side):
        for call in calls[:3]:
            call()
    t.cuda.current_stream().wait_stream(side)
    rounds = max(1, -(-least // len(calls)))
    graph = t.cuda.CUDAGraph()
    kept = []
    with t.cuda.graph(graph, pool=pool):
        for _ in range(rounds):
            # Results of a round live until the next one is done: they lie in different places.
            kept = [call() for call in calls]
    del kept
    return graph, rounds * len(calls)


def flushed_us(call: Callable[[], object]) -> float:
    """Return the time of single calls in µs, with the L2 cache overwritten before each of them."""
    t = _torch()
    other = t.empty(FLUSHED, dtype=t.uint8, device="cuda")
    pairs = []
    for _ in range(SINGLES):
        # The device is busy with this while the host prepares the call.
        other.zero_()
        start, stop = (t.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        pairs.append((start, stop))
    t.cuda.synchronize()
    return statistics.median(1e3 * float(start.elapsed_time(stop)) for start, stop in pairs[3:])


def host_us(call: Callable[[], object], count: int = 500) -> float:
    """Return the host's time of one call in µs, the device left to catch up in between."""
    t = _torch()
    times = []
    for _ in range(5):
        t.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append(1e6 * (time.perf_counter() - start) / count)
    t.cuda.synchronize()
    return min(times)


COPY = redlang.compile("""
def copy(x: "n") -> "n":
    return x
""")


def copy_us(size: int, turns: int) -> float:
    """Return the time of a copy that moves `size` bytes, read plus written.

    The faster of torch's and of redlang's own kernel without arithmetic, over arrays in turn.
    """
    t = _torch()
    count = size // 8
    pairs = [(t.randn(count, device="cuda"), t.empty(count, device="cuda")) for _ in range(turns)]
    COPY(pairs[0][0])
    return min(
        graph_us([partial(b.copy_, a) for a, b in pairs]),
        graph_us([partial(COPY, a, out=b) for a, b in pairs]),
    )
