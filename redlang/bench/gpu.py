"""`python -m redlang.bench.gpu`: redlang beside torch and torch.compile on one GPU.

A workload's time is taken from replays of a CUDA graph that holds several calls. Two figures: calls
on the same arrays, which may stay in the L2 cache, and calls in turn on arrays that together do not
fit there. Bandwidth and its share of a copy's, measured in the same run, belong to the second.
Every way is checked against torch in f32 or f64 first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from redlang.bench.gpu_times import copy_us, flushed_us, graph_us, graphs_us, host_us
from redlang.bench.gpu_workloads import GPU_WORKLOADS, GpuWorkload, Tensor
from redlang.bench.picture import Bars, write
from redlang.bench.plans import Forced, built, numbers
from redlang.frontend.resolve import Signature
from redlang.ir.extents import bind_extents
from redlang.ir.types import DTYPES
from redlang.runtime.cuda_compiler import CudaCompiler, cuda_arrays
from redlang.runtime.driver import require_driver
from redlang.runtime.interop import TORCH_NAMES
from redlang.runtime.probe import probe
from redlang.schedule.device import Device

COLD_BYTES = 4
"""Arrays that calls take turns on hold this many times the L2 cache."""
TURNS = 3
"""Sets of arrays at least: where results lie beside inputs in memory is worth some percent."""
MEMORY = 1 << 33
"""Bytes of inputs and results that all sets of a workload may take."""
COPIED = 1 << 32
"""Bytes that the copy moves whose bandwidth stands above the table."""


@dataclass(slots=True)
class Line:
    """One workload's figures, in µs a call.

    Attributes:
        hot_us: On the same arrays, by way; `redlang`, `torch`, `compile`.
        cold_us: On arrays in turn.
        flushed_us: Single calls with a cold L2 cache, what launching takes of them included.
        call_us: Host time of one call of redlang and of torch.
        first_call_s: redlang's first call.
        copy_us: A copy that moves as many bytes, in turn too.
        share: Of the bandwidth of that copy, cold.
        error: Largest difference from torch in double precision, over the largest value.
        plan: The plan in a line, with the model's time.
        plans: Measured and predicted time of each candidate, where asked for.
    """

    name: str
    size: str
    bytes: int
    bar: float
    over: float
    hot_us: dict[str, float] = field(default_factory=dict)
    cold_us: dict[str, float] = field(default_factory=dict)
    flushed_us: dict[str, float] = field(default_factory=dict)
    call_us: dict[str, float] = field(default_factory=dict)
    first_call_s: float = 0.0
    copy_us: float = 0.0
    share: float = 0.0
    error: float = 0.0
    plan: str = ""
    plans: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""


def _torch() -> Any:  # noqa: ANN401  (a module, optional)
    return importlib.import_module("torch")


# One workload ----------------------------------------------------------------------------------


class Bench:
    """Measures workloads on the current device."""

    def __init__(self, device: Device, peers: Sequence[str], plans: int) -> None:
        self.device = device
        self.copies: dict[int, float] = {}
        self.peers = peers
        self.plans = plans

    def measure(self, work: GpuWorkload) -> Line:
        """Return the figures of one workload."""
        line = Line(work.name, work.size, work.bytes, work.bar, work.over)
        t = _torch()
        args = work.inputs()
        start = time.perf_counter()
        result = work.kernel(*args)
        t.cuda.synchronize()
        line.first_call_s = time.perf_counter() - start
        line.error = error(result, work.eager(*_wide(args)))
        copies = max(TURNS, min(64, COLD_BYTES * self.device.l2_bytes // work.bytes))
        copies = max(1, min(copies, MEMORY // work.bytes))
        sets = [args, *(work.inputs() for _ in range(copies - 1))]
        ways: dict[str, Callable[..., object]] = {"redlang": work.kernel}
        if "torch" in self.peers:
            ways["torch"] = work.eager
        if "compile" in self.peers:
            t._dynamo.reset()
            ways["compile"] = t.compile(work.eager, dynamic=False)
        for name, way in ways.items():
            if name != "compile" and work.bytes < 1 << 24:
                line.call_us[name] = host_us(partial(way, *args))
        line.flushed_us = {n: flushed_us(partial(way, *args)) for n, way in ways.items()}
        line.hot_us = graphs_us({name: [partial(way, *args)] for name, way in ways.items()})
        line.cold_us = graphs_us(
            {name: [partial(way, *each) for each in sets] for name, way in ways.items()}
        )
        if work.bytes not in self.copies:
            self.copies[work.bytes] = copy_us(work.bytes, copies)
        line.copy_us = self.copies[work.bytes]
        line.share = line.copy_us / line.cold_us["redlang"]
        line.plan = self._plan(work)
        if self.plans:
            line.plans = list(self._candidates(work, args, sets))
        return line

    def _plan(self, work: GpuWorkload) -> str:
        lines = work.kernel.explain("plan").splitlines()
        spread = [x.strip() for x in lines if "threads ×" in x or x.startswith("nest")]
        return "; ".join(" ".join(x.split()) for x in spread)

    def _candidates(
        self, work: GpuWorkload, args: tuple[Tensor, ...], sets: list[tuple[Tensor, ...]]
    ) -> Iterator[dict[str, Any]]:
        """Measure the best candidates of the model, whichever it chose."""
        forced = Forced(work.kernel, self.device)
        for candidate in forced.candidates(self.plans):
            try:
                run = forced.call(candidate, args)
                turns = [partial(run, *each) for each in sets]
                yield {
                    "family": candidate.family,
                    "shape": candidate.shape,
                    "predicted_us": candidate.time_us,
                    "registers": candidate.registers,
                    "spill_bytes": candidate.spill_bytes,
                    "hot_us": graph_us([partial(run, *args)]),
                    "cold_us": graph_us(turns),
                }
            except Exception as problem:  # one plan's failure is a finding, not the end
                yield {"shape": candidate.shape, "problem": f"{type(problem).__name__}: {problem}"}


def _wide(args: tuple[Tensor, ...]) -> list[Tensor]:
    t = _torch()
    large = max(x.numel() for x in args) >= 1 << 26
    kind = t.float32 if large else t.float64
    return [x.to(kind) if x.is_floating_point() else x for x in args]


def error(found: object, expected: object) -> float:
    """Return the largest difference over the largest value; for indices, the share that differs."""
    pairs = zip(_each(found), _each(expected), strict=True)
    worst = 0.0
    for a, b in pairs:
        if not a.is_floating_point():
            worst = max(worst, (a != b).float().mean().item())
            continue
        a, b = a.float(), b.float()
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item())
    return worst


def _each(value: object) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


# Ahead of time ----------------------------------------------------------------------------------


def prebuild(
    works: Sequence[GpuWorkload], device: Device, workers: int, plans: int, budget_s: float
) -> None:
    """Compile all kernels in other processes, which leave them in the disk cache."""
    names = {name: key for key, name in TORCH_NAMES.items()}
    tasks = []
    for work in works:
        args = work.inputs()
        shapes = [(tuple(x.shape), names[str(x.dtype).removeprefix("torch.")]) for x in args]
        tasks.append((GPU_WORKLOADS.index(work), shapes, device))
    until = time.time() + budget_s
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(_prebuild, *task, -1, until) for task in tasks]
        jobs += [pool.submit(_prebuild, *task, i, until) for i in range(plans) for task in tasks]
        for problem in {job.result() for job in jobs} - {""}:
            print(problem, file=sys.stderr)


def _prebuild(
    number: int, shapes: list[tuple[tuple[int, ...], str]], device: Device, plan: int, until: float
) -> str:
    """Compile the plan of a workload, or one of its candidates; return what went wrong."""
    if time.time() > until:
        return "out of time for compiling ahead"
    try:
        compiler, extents = described(GPU_WORKLOADS[number], shapes, device)
        arrays = cuda_arrays(compiler.compiler.program, extents)
        if plan < 0:
            compiler.find(extents, arrays)
            return ""
        choice, known = compiler.classify(extents, arrays)
        for place in numbers(choice, plan + 1)[plan:]:
            built(compiler, choice, known, place)
    except Exception as problem:  # reported by the parent; the call itself will fail again
        return f"{GPU_WORKLOADS[number].name}: {type(problem).__name__}: {problem}"
    return ""


def described(
    work: GpuWorkload, shapes: list[tuple[tuple[int, ...], str]], device: Device
) -> tuple[CudaCompiler, dict[str, int]]:
    """Return the compiler of a workload and its extents, from the shapes of its arguments."""
    machine = work.kernel.machine
    names = [p.name for p in machine.caller.declared.parameters]
    given = dict(zip(names, shapes, strict=False))
    dtypes = {name: DTYPES[dtype] for name, (_, dtype) in given.items()}
    program = machine.caller.resolve(Signature(dtypes)).program
    extents = dict(bind_extents(program, {n: s for n, (s, _) in given.items()}, {}))
    return machine.cuda_compiler(program, device), extents


# The table --------------------------------------------------------------------------------------


def plans_table(lines: Sequence[Line]) -> str:
    """Return measured beside predicted times of candidates as text; the chosen one is first."""
    rows = []
    for line in lines:
        if line.plans:
            rows.append(f"{line.name} {line.size}: cold µs, hot µs, predicted µs, registers, plan")
        for plan in line.plans:
            if "problem" in plan:
                rows.append(f"  {plan['problem'][:150]}  {plan['shape']}")
                continue
            times = " ".join(f"{plan[key]:8.1f}" for key in ("cold_us", "hot_us", "predicted_us"))
            spill = f" spills {plan['spill_bytes']}" if plan["spill_bytes"] else ""
            what = f"{plan['registers']:4}{spill}  {plan['family']}: {plan['shape']}"
            rows.append(f"  {times} {what}")
    return "\n".join(rows)


def table(lines: Sequence[Line], bandwidth: float) -> str:
    """Return the figures as text."""
    head = (
        f"{'workload':30} {'size':13} {'redlang':>8} {'hot':>7} {'GB/s':>6} {'copy':>7}"
        f" {'share':>5} {'bar':>4}"
        f" {'torch':>8} {'compile':>8} {'×comp':>6} {'error':>8} {'1st s':>5}  plan"
    )
    rows = [f"copy {bandwidth:.0f} GB/s; µs a call, arrays in turn (hot: the same arrays)", head]
    for line in lines:
        if line.problem:
            rows.append(f"{line.name:30} {line.size:13} {line.problem[:160]}")
            continue
        ours = line.cold_us["redlang"]
        torch_us, compiled = line.cold_us.get("torch", 0.0), line.cold_us.get("compile", 0.0)
        rows.append(
            f"{line.name:30} {line.size:13} {ours:8.1f} {line.hot_us['redlang']:7.1f}"
            f" {line.bytes / ours / 1e3:6.0f} {line.copy_us:7.1f} {line.share:5.2f} {line.bar:4.2f}"
            f" {torch_us:8.1f} {compiled:8.1f} {compiled / ours:6.2f} {line.error:8.1e}"
            f" {line.first_call_s:5.2f}  {line.plan}"
        )
    return "\n".join(rows)


def call_table(lines: Sequence[Line]) -> str:
    """Return the times of single calls as text."""
    rows = ["µs of a single call with a cold L2 cache; µs of the host for one call"]
    for line in lines:
        single = ", ".join(f"{name} {us:.1f}" for name, us in line.flushed_us.items())
        host = ", ".join(f"{name} {us:.1f}" for name, us in line.call_us.items())
        rows.append(f"{line.name:30} {line.size:13} {single}{'; host: ' if host else ''}{host}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m redlang.bench.gpu", description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name or group holds this")
    parser.add_argument("--first", action="store_true", help="only those that matter most")
    parser.add_argument("--peers", default="torch,compile", help="of torch, compile")
    parser.add_argument("--plans", type=int, default=0, help="also measure so many candidates")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which it stops")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile ahead")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--picture", type=Path, help="file for bars, .svg or .txt")
    options = parser.parse_args(arguments)
    begun = time.perf_counter()
    require_driver()
    device = probe(0)
    assert device is not None
    works = [
        w
        for w in GPU_WORKLOADS
        if (options.only in w.name or options.only in w.row) and (w.first or not options.first)
    ]
    works.sort(key=lambda w: not w.first)
    if options.workers:
        prebuild(works, device, options.workers, options.plans, options.budget / 3)
    print(f"compiled ahead in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
    bandwidth = COPIED / copy_us(COPIED, 1) / 1e3
    bench = Bench(device, options.peers.split(","), options.plans)
    lines: list[Line] = []
    for work in works:
        if time.perf_counter() - begun > options.budget:
            print(f"out of time before {work.name} {work.size}", file=sys.stderr)
            break
        try:
            lines.append(bench.measure(work))
        except Exception as problem:  # one workload's failure is a line of the table
            lines.append(Line(work.name, work.size, work.bytes, work.bar, work.over))
            lines[-1].problem = f"{type(problem).__name__}: {problem}"
        if options.json:
            report = {"device": asdict(device), "copy_gb_s": bandwidth}
            options.json.write_text(json.dumps({**report, "lines": [asdict(x) for x in lines]}))
    print(plans_table(lines))
    print(table(lines, bandwidth))
    print(call_table(lines))
    if options.picture:
        write(options.picture, f"{device.name}, arrays in turn", bars_of(lines, bandwidth))
    return 0


def bars_of(lines: Sequence[Line], bandwidth: float) -> list[Bars]:
    """Return the figures as bars, with the time of the bytes at copy bandwidth as the floor."""
    return [
        Bars(f"{line.name} {line.size}", line.cold_us, line.bytes / bandwidth / 1e3)
        for line in lines
        if not line.problem
    ]


if __name__ == "__main__":
    sys.exit(main())
