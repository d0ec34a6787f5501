"""Calls with a plan of one's own choice: how the model's ranking is compared with the clock."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redlang.kernel import Kernel, copy
from redlang.runtime.cache import digest, disk, unpickled, versions
from redlang.runtime.cuda_classes import Known
from redlang.runtime.cuda_code import CudaCode
from redlang.runtime.cuda_compiler import CudaCompiler
from redlang.schedule.device import Device
from redlang.schedule.plan_text import shape_text
from redlang.schedule.search import Choice, Ranked


@dataclass(frozen=True, slots=True)
class Forced:
    """A kernel whose plans are chosen from outside, one after another."""

    kernel: Kernel
    device: Device

    @property
    def compiler(self) -> CudaCompiler:
        """What compiled the last call."""
        machine = self.kernel.machine
        return machine.cuda_compiler(machine.program, self.device)

    def candidates(self, count: int) -> Iterator[Measured]:
        """Yield candidates of the last call's class from the best to the worst, compiled."""
        compiler = self.compiler
        assert compiler.last_choice is not None
        assert compiler.last_known is not None
        for number in numbers(compiler.last_choice, count):
            found = built(compiler, compiler.last_choice, compiler.last_known, number)
            if found is not None:
                yield found

    def call(self, measured: Measured, args: tuple[Any, ...]) -> Kernel:
        """Return the kernel as one that runs a candidate, whatever it would choose."""
        machine = self.kernel.machine
        fresh = copy(self.kernel)
        compiler = CudaCompiler(machine.compiler(machine.program), self.device)
        compiler.forced = measured.code
        fresh.machine.use(machine.program, compiler)
        fresh(*args)
        return fresh


def numbers(choice: Choice, count: int) -> list[int]:
    """Return places in the ranking: close to each other at the top, then farther apart."""
    longest = max(map(len, choice.ranked))
    return [n for n in (i * (i + 1) // 2 for i in range(count)) if n < longest]


def built(compiler: CudaCompiler, choice: Choice, known: Known, number: int) -> Measured | None:
    """Return the candidates at a place of each nest's ranking, compiled or from the disk cache."""
    chosen = [options[min(number, len(options) - 1)] for options in choice.ranked]
    parts = [part for r in chosen for part in r.candidate.parts]
    program = repr(compiler.compiler.program)
    classes = repr([known.key(part) for part in parts])
    key = digest("cuda candidate", program, repr(chosen), classes, repr(known.device), *versions())
    store = disk()
    code = unpickled(store, key, CudaCode)
    if code is None:
        code, _ = compiler.build(chosen, known, strict=False)
        if code is None:
            return None
        store.store(key, pickle.dumps(code))
    return Measured(tuple(chosen), code)


@dataclass(frozen=True, slots=True)
class Measured:
    """A compiled candidate of every nest."""

    chosen: tuple[Ranked, ...]
    code: CudaCode

    @property
    def family(self) -> str:
        """The families of its nests."""
        return ", ".join(r.candidate.family for r in self.chosen)

    @property
    def shape(self) -> str:
        """Its threads in a line."""
        return " | ".join(shape_text(p) for r in self.chosen for p in r.candidate.parts)

    @property
    def time_us(self) -> float:
        """The model's time."""
        return sum(r.time_us for r in self.chosen)

    @property
    def registers(self) -> int:
        """The most registers that a thread of it has."""
        return max(k.registers for k in self.code.kernels)

    @property
    def spill_bytes(self) -> int:
        """Bytes that its kernels spill."""
        return sum(k.spill_bytes for k in self.code.kernels)
