"""`python -m redlang.testing.fuzz`: many generated cascades, each computed in every way there is.

The unfused program in double precision is right. The derived sweeps, random plans run as loops,
and for some of the cascades the compiled kernel must agree with it under the contract; every stage
that shares a sweep must have its proof. With `--backend cuda` larger cascades run on a GPU. A
cascade is known by its seed, so a fault that is found here is repeated with `--seed`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from redlang.algebra.fuse import fuse
from redlang.algebra.verdicts import Fused, StageVerdict
from redlang.ir.interpret import bind
from redlang.ir.normalise import normalise
from redlang.ir.run_loops import run_loops
from redlang.ir.run_sweep import interpret_sweeps
from redlang.kernel import Kernel
from redlang.kernel import compile as compiled
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.testing.cascades import ELEMENT_TYPES, Cascade, disagreement, random_cascade
from redlang.testing.faults import Fault
from redlang.testing.on_gpu import examine_on_gpu
from redlang.testing.plans import Pick, draw_plan
from redlang.testing.rounding import as_tuple, tolerance

Array = NDArray[Any]
Results = tuple[Array, ...]

SILENCE = 300.0
"""Seconds without any result after which a process is taken to hang."""
CUTS = ((7, 1), (1, 1), (16, 3))
"""Tile and number of segments of the sweeps that are tried."""


def examine(seed: int, *, compile: bool = False) -> list[Fault]:
    """Return what is wrong with the cascade of a seed; empty if nothing is.

    Args:
        seed: Which cascade.
        compile: Whether to compile it as well, which takes a second or two.
    """
    cascade = random_cascade(seed, dtypes=ELEMENT_TYPES)
    faults: list[Fault] = []
    try:
        trial = _Trial(cascade)
        if stages := unproved(trial.fusion.verdicts):
            faults.append(Fault(seed, "the algebra", f"no proof for {stages}", cascade))
        for who, results, double in trial.forms(random.Random(seed).choice, compile=compile):
            if problem := trial.judge(results, double=double):
                faults.append(Fault(seed, who, problem, cascade))
    except Exception:  # any error of any layer is a fault to report
        faults.append(Fault(seed, "an error", traceback.format_exc(), cascade))
    return faults


class _Trial:
    """One cascade: what is right, how far off results may be, and its forms."""

    def __init__(self, cascade: Cascade) -> None:

        self.cascade = cascade
        self.kernel: Kernel = compiled(cascade.text)
        self.arguments = cascade.arguments
        call = self.kernel.machine.caller.examine((), self.arguments)
        self.fusion = fuse(normalise(call.program))
        reference: Callable[..., Any] = self.kernel.reference
        self.right: Results = as_tuple(reference(**self.arguments))
        self.declared: Results = as_tuple(reference(**self.arguments, precision="declared"))
        self.allowed = tolerance(self.kernel, self.arguments, 2.0**-52)
        self.eps_ratio = cascade.precision / 2.0**-52

    def forms(self, pick: Pick, *, compile: bool) -> Iterator[tuple[str, Results, bool]]:
        """Yield each form's name, its results, and whether it computed in double precision."""
        program, sweeps = self.fusion.program, self.fusion.sweeps
        for tile, segments in CUTS:
            results = interpret_sweeps(
                program, sweeps, self.arguments, tile=tile, segments=segments, store=False
            )
            yield f"sweeps in tiles of {tile}, {segments} segments", results, True
        tile = pick((1, 5, 64))
        results = interpret_sweeps(program, sweeps, self.arguments, tile=tile, precision="declared")
        yield f"sweeps in tiles of {tile}, in declared types", results, False
        nests = find_nests(program, sweeps)
        plan, cuts = draw_plan(pick, program, nests)
        results = run_loops(lower(program, nests, plan), bind(program, self.arguments), cuts)
        yield f"{plan} with {cuts}", self._whole(results), True
        if compile:
            yield "the compiled kernel", as_tuple(self.kernel(**self.arguments)), False

    def _whole(self, results: Sequence[Array]) -> Results:
        return tuple(
            one.reshape(other.shape) for one, other in zip(results, self.right, strict=True)
        )

    def judge(self, results: Results, *, double: bool) -> str:
        """Return how results break the contract; empty if they do not."""
        ratio = 1.0 if double else self.eps_ratio
        allowed = tuple(ratio * a for a in self.allowed)
        return disagreement(
            self.cascade, results, self.right, allowed, None if double else self.declared
        )


def unproved(verdicts: Iterable[StageVerdict]) -> list[str]:
    """Return the stages that are carried with no proof, or with one that numbers did not check."""
    return [
        verdict.stage
        for verdict in verdicts
        if isinstance(verdict, Fused) and not (verdict.proof.obligation and verdict.proof.method)
    ]


@dataclass(frozen=True, slots=True)
class _Task:
    """What a process is asked: which cascade, on what, and whether to compile it for the CPU."""

    seed: int
    backend: str
    compile: bool = False


def _work(task: _Task) -> tuple[int, list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if task.backend == "cuda":
            try:
                return task.seed, [str(fault) for fault in examine_on_gpu(task.seed)]
            except RuntimeError as error:
                return task.seed, [f"seed {task.seed}: {error}"]
        return task.seed, [str(fault) for fault in examine(task.seed, compile=task.compile)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cascades and print what is wrong; return the exit status."""
    parser = argparse.ArgumentParser(prog="redlang.testing.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="how many cascades")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help="what computes")
    parser.add_argument("--every", type=int, default=50, help="one in so many is compiled (cpu)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which it stops")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.count)
    tasks = [_Task(seed, options.backend, seed % options.every == 0) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        # Nobody needs thousands of generated kernels in the cache later.
        os.environ.update(REDLANG_CACHE_DIR=folder, REDLANG_NUM_THREADS="1")
        return _run(tasks, options.jobs, options.budget)


def _run(tasks: Sequence[_Task], jobs: int, budget: float) -> int:
    """Do tasks in other processes until the time is over; return the exit status."""
    start, wrong = time.perf_counter(), 0
    waiting = {task.seed for task in tasks}
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=500 if tasks[0].backend == "cpu" else 60) as pool:
        results = pool.imap_unordered(_work, tasks)
        while waiting:
            spent = time.perf_counter() - start
            try:
                seed, faults = results.next(max(0.0, min(budget - spent, SILENCE)))
            except multiprocessing.TimeoutError:
                print(f"stopped before {sorted(waiting)[:jobs]} and others", flush=True)
                break
            waiting.discard(seed)
            wrong += bool(faults)
            for fault in faults:
                print(fault, end="\n\n", flush=True)
            done = len(tasks) - len(waiting)
            if done % 100 == 0 or not waiting:
                print(f"{done} cascades, {wrong} wrong, {spent:.0f} s", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
