"""What compiling for a GPU gives: the code of a plan, and its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from redlang.codegen.cuda.kernel_text import KernelText
from redlang.codegen.cuda.matrix_text import MatrixText
from redlang.ir.loops import Loops
from redlang.runtime.cuda_course import Image
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import Device
from redlang.schedule.estimates import BEGIN_US, Estimate
from redlang.schedule.occupancy import Occupancy, occupancy
from redlang.schedule.parts import Part
from redlang.targets.toolchain import parse_target

Text: TypeAlias = KernelText | MatrixText
CHAINING = 9
"""The compute capability from which kernels overlap at their ends."""
MOST = 0.85
"""The share of a kernel's time that beginning its blocks may come to."""


def is_chained(estimate: Estimate, device: Device) -> bool:
    """Tell whether a kernel waits for what runs before it, and lets what comes after it begin.

    That saves half a microsecond, but blocks begin at half the rate.
    """
    if parse_target(device.target)[0] < CHAINING:
        return False
    return BEGIN_US * estimate.blocks < MOST * estimate.time_us


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A compiled kernel.

    Attributes:
        text: The generated text with its geometry.
        cubin, ptx: What became of it.
        registers, spill_bytes, shared_bytes: As `ptxas` reports them; shared memory is what a
            block asks for, static and dynamic.
        part: The number of its part in the plan.
        early: From how many blocks on it may be launched early; None where it never may.
    """

    text: Text
    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    registers: int
    spill_bytes: int
    shared_bytes: int
    part: int
    early: int | None = None

    @property
    def image(self) -> Image:
        """Return what a device loads."""
        text = self.text
        own = text.threads, text.shared_bytes, text.kinds
        return Image(self.cubin, text.entry, *own, self.early)

    def occupancy(self, device: Device) -> Occupancy:
        """Return how many of its blocks an SM holds, and what limits them."""
        demand = BlockDemand(self.text.threads, self.registers, self.shared_bytes)
        return occupancy(demand, device.sm)


def leaner(text: Text, registers: int, expected: int, device: Device) -> Iterator[Text]:
    """Yield kernels that leave room for more blocks on an SM, the most first.

    The compiler takes registers as it finds them, at times twice what a kernel needs. Norms over a
    middle axis take 15 to 40 % less time with what their plans count with.

    Args:
        text: A kernel.
        registers: What the compiler took for a thread of it.
        expected: What its plan counts with.
        device: What it runs on.
    """
    fits, most = (
        occupancy(BlockDemand(text.threads, count, text.shared_bytes), device.sm).blocks
        for count in (registers, min(expected, registers))
    )
    for blocks in sorted({most, (most + fits + 1) // 2, fits + 1}, reverse=True):
        if fits < blocks <= most:
            yield replace(text, min_blocks=blocks)


def filled(part: Part, kernel: CudaKernel, device: Device) -> Part:
    """Return a part whose blocks that share units are as many as fit, as they were compiled.

    Where some room is left, the next call's blocks would come to it unevenly.
    """
    if not part.across or part.matrix is not None or part.classes is not None:
        return part
    fits = max(1, kernel.occupancy(device).blocks)
    return replace(part, threads=replace(part.threads, min_blocks=fits))


@dataclass(frozen=True, slots=True)
class CudaCode:
    """Compiled code of one plan.

    Attributes:
        loops: What it does.
        parts: The plans of its kernels.
        kernels: In the order of their launches.
        target: The compute capability, as `"9.0a"`.
        refused: Plans that were better by the model, and why the compiler gave them up.
    """

    loops: Loops
    parts: tuple[Part, ...]
    kernels: tuple[CudaKernel, ...]
    target: str
    refused: tuple[str, ...] = ()

    @property
    def images(self) -> tuple[Image, ...]:
        """Return what a device loads."""
        return tuple(kernel.image for kernel in self.kernels)


@dataclass(frozen=True, slots=True)
class KernelStats:
    """Figures of one compiled kernel.

    Attributes:
        name: The kernel's entry.
        registers: Registers a thread.
        spill_bytes: Bytes spilled to local memory; plans that spill are given up where another
            one does not.
        shared_bytes: Shared memory a block.
        threads: Threads a block.
        occupancy: Resident blocks and what limits them.
    """

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int
    occupancy: Occupancy


def kernel_stats(code: CudaCode, device: Device) -> tuple[KernelStats, ...]:
    """Return the figures of every kernel of a plan on a device."""
    return tuple(
        KernelStats(
            k.text.entry,
            k.registers,
            k.spill_bytes,
            k.shared_bytes,
            k.text.threads,
            k.occupancy(device),
        )
        for k in code.kernels
    )
