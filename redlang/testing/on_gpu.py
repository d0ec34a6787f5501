"""Generated cascades on a GPU: through the public call, on tensors of every layout.

Each runs with the plan that the model chooses, with another one of its candidates, and into given
results, around which nothing may change. What is not stored shows: new memory is NaN.
"""

from __future__ import annotations

import importlib
import random
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redlang.kernel import Kernel, copy
from redlang.kernel import compile as compiled
from redlang.runtime.cuda_code import CudaCode
from redlang.runtime.cuda_compiler import CudaCompiler
from redlang.runtime.interop import TORCH
from redlang.runtime.probe import probe
from redlang.testing.cascades import (
    ELEMENT_TYPES,
    LARGE,
    Cascade,
    Sizes,
    disagreement,
    random_cascade,
)
from redlang.testing.faults import Fault
from redlang.testing.layouts import Placed, placed, placed_all
from redlang.testing.plans import Pick
from redlang.testing.rounding import as_tuple, tolerance

Array = NDArray[Any]

_lost: list[int] = []
"""The seed whose kernel made the device unusable for this process, if any did."""
NOISE = 1e-11
"""How far off the reference itself may be, where sums of large terms cancel."""


def examine_on_gpu(
    seed: int, *, plans: int = 1, device: str = "cuda", sizes: Sizes = LARGE
) -> list[Fault]:
    """Return what is wrong with the cascade of a seed on a GPU; empty if nothing is.

    Args:
        seed: Which cascade, in which layouts, under which plans.
        plans: How many plans to try besides the chosen one.
        device: Where, as torch names it.
        sizes: Of what size the cascade is.
    """
    if _lost:
        time.sleep(1)  # other processes are better off with the seeds that are left
        raise RuntimeError(f"not tried: seed {_lost[0]} has cost this process its device")
    pick = random.Random(seed).choice
    types = list(ELEMENT_TYPES)
    random.Random(seed).shuffle(types)
    cascade = random_cascade(seed, dtypes=tuple(types), sizes=sizes)
    with _new_memory_is_nan():
        return _examine(seed, pick, plans, cascade, placed_all(pick, cascade.arguments), device)


def _examine(
    seed: int,
    pick: Pick,
    plans: int,
    cascade: Cascade,
    places: Mapping[str, Placed | float],
    device: str,
) -> list[Fault]:
    faults: list[Fault] = []
    who = "the algebra"
    try:
        trial = _Trial(cascade, places, device)
        who = "the chosen plan"
        faults += trial.judged(seed, who, trial.kernel)
        for _ in range(plans):
            code = trial.another(pick)
            if code is not None:
                who = ", ".join(p.plan.kind + " " + str(p.threads) for p in code.parts)
                faults += trial.judged(seed, who, trial.forced(code))
        if pick(range(3)) == 0:
            who = "given results"
            faults += trial.into(seed, pick)
    except Exception:  # any error of any layer is a fault to report
        faults.append(Fault(seed, who, traceback.format_exc() + trial_text(places), cascade))
        if device != "cpu" and not _is_alive():
            _lost.append(seed)
    return faults


@contextmanager
def _new_memory_is_nan() -> Iterator[None]:
    """Let what is not stored show; then torch is as it was."""
    torch = importlib.import_module("torch")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def _is_alive() -> bool:
    try:
        importlib.import_module("torch").cuda.synchronize()
    except RuntimeError:
        return False
    return True


def trial_text(places: Mapping[str, Placed | float]) -> str:
    """Return types and layouts in a line."""
    arrays = ((n, p) for n, p in places.items() if isinstance(p, Placed))
    return ", ".join(f"{name}: {p.memory.dtype} {p.layout}" for name, p in arrays)


class _Trial:
    """One cascade on a device, and what is right."""

    def __init__(self, cascade: Cascade, places: Mapping[str, Placed | float], device: str) -> None:
        self.cascade, self.places, self.device = cascade, places, device
        self.kernel: Kernel = compiled(cascade.text)
        self.arguments = {
            name: value.tensor(device) if isinstance(value, Placed) else value
            for name, value in places.items()
        }
        own = {n: v.view if isinstance(v, Placed) else v for n, v in places.items()}
        reference: Callable[..., Any] = self.kernel.reference
        self.right = as_tuple(reference(**own))
        self.declared = as_tuple(reference(**own, precision="declared"))
        moved = tolerance(self.kernel, own, cascade.precision)
        self.allowed = tuple(each + NOISE for each in moved)

    def judged(self, seed: int, who: str, kernel: Callable[..., Any]) -> list[Fault]:
        """Return what is wrong with the results of a call."""
        return self._faults(seed, who, as_tuple(kernel(**self.arguments)))

    def _faults(self, seed: int, who: str, results: tuple[Any, ...]) -> list[Fault]:
        found = tuple(np.asarray(TORCH.to_numpy(x)) for x in results)
        problem = disagreement(self.cascade, found, self.right, self.allowed, self.declared)
        where = f"{problem}\n{trial_text(self.places)}"
        return [Fault(seed, who, where, self.cascade)] if problem else []

    @property
    def compiler(self) -> CudaCompiler:
        """What compiled the last call."""
        machine, device = self.kernel.machine, probe(0)
        assert device is not None
        return machine.cuda_compiler(machine.program, device)

    def another(self, pick: Pick) -> CudaCode | None:
        """Return code of a candidate of every nest; None where the compiler refuses one."""
        choice, known = self.compiler.last_choice, self.compiler.last_known
        if choice is None or known is None:
            return None
        chosen = [pick(options) for options in choice.ranked]
        return self.compiler.build(chosen, known, strict=False)[0]

    def forced(self, code: CudaCode) -> Kernel:
        """Return the kernel as one that runs some code."""
        machine = self.kernel.machine
        fresh = copy(self.kernel)
        compiler = CudaCompiler(machine.compiler(machine.program), self.compiler.device)
        compiler.forced = code
        fresh.machine.use(machine.program, compiler)
        return fresh

    def into(self, seed: int, pick: Pick) -> list[Fault]:
        """Return what is wrong where the results are given, in some layout."""
        torch = importlib.import_module("torch")
        results = as_tuple(self.kernel(**self.arguments))
        given = []
        for result in results:
            empty = np.zeros(tuple(result.shape), np.asarray(TORCH.to_numpy(result[..., :0])).dtype)
            place = placed(pick, empty)
            while place.layout == "expanded":
                place = placed(pick, empty)
            given.append((place.tensor(self.device), place))
        out = tuple(tensor for tensor, _ in given)
        self.kernel(**self.arguments, out=out if len(out) > 1 else out[0])
        faults = self._faults(seed, "given results", out)
        for number, (tensor, place) in enumerate(given):
            whole = torch.as_strided(tensor, place.memory.shape, (1,), 0)
            after = np.asarray(TORCH.to_numpy(whole)).copy()
            own = np.zeros(after.shape, bool)
            size = np.lib.stride_tricks.as_strided(own[place.offset :], place.shape, place.strides)
            size[...] = True
            changed = after.view(np.uint8) != place.memory.view(np.uint8)
            if (changed.reshape(len(own), -1).any(axis=1) & ~own).any():
                problem = f"memory beside result {number} ({place.layout}) changes"
                faults.append(Fault(seed, "given results", problem, self.cascade))
        return faults
