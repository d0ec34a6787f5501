"""How the elements of a unit lie in threads and registers on a GPU.

Each axis that a kernel gives a range is spread once, for the whole kernel: a value over some axes
then has a fixed place in registers, threads that differ in other axes hold copies, and no value
ever moves between layouts. Along one axis an element's index is

    first + (register * threads + thread) * width + place

so that neighbouring lanes hold neighbouring groups of `width` elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from redlang.schedule.device import CLUSTER, REGISTERS_PER_BLOCK, THREADS_PER_BLOCK, WARP


@dataclass(frozen=True, slots=True)
class Spread:
    """How the current range of one axis lies in a unit's threads.

    Attributes:
        axis: The axis.
        registers: Groups of elements that a thread holds.
        threads: Threads that share the range; a power of two.
        width: Neighbouring elements in a group.
        start: The number of the first group, where a thread holds a part of its range at a time.
    """

    axis: str
    registers: int = 1
    threads: int = 1
    width: int = 1
    start: int = 0

    @property
    def extent(self) -> int:
        """Return how many elements the spread covers."""
        return self.registers * self.threads * self.width

    @property
    def count(self) -> int:
        """Return how many elements one thread holds."""
        return self.registers * self.width

    @property
    def reaches(self) -> tuple[int, ...]:
        """Return what each element of a thread adds to the thread's first index."""
        step = self.threads * self.width
        groups = range(self.start, self.start + self.registers)
        return tuple(group * step + place for group in groups for place in range(self.width))


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """The threads of a block.

    Attributes:
        spreads: Axes with more than one element in a unit; the last one has the lowest bits of the
            thread's number.
        units: Units that share a block; more than one only if a unit fits in a warp.
        blocks: Blocks that share a unit, as a cluster; a power of two. Which block of them a
            thread is in counts as the highest bits of the thread's number.
        strips: Swept axes over which each thread keeps states of its own until the sweep is over.
        ahead: Tiles of a strip's loads that are on their way to shared memory while another is
            computed with.
        shared: Whether what a unit holds lies in shared memory, to be read anew after each fold,
            and not in registers.
        stored: Whether it lies in registers as it is stored, to be read part by part for each fold.
        min_blocks: Blocks that the compiler should leave registers for on one SM.
    """

    spreads: tuple[Spread, ...]
    units: int = 1
    strips: tuple[str, ...] = ()
    min_blocks: int = 1
    blocks: int = 1
    ahead: int = 0
    shared: bool = False
    stored: bool = False

    def __post_init__(self) -> None:
        """Check that threads can be told apart by bits, and that units keep to themselves."""
        for spread in self.spreads:
            if spread.threads & (spread.threads - 1):
                raise ValueError(f"{spread.threads} threads along {spread.axis}: no power of two")
        if self.units > 1 and self.unit_threads > WARP:
            raise ValueError(f"{self.units} units of {self.unit_threads} threads in a block")
        if self.blocks & (self.blocks - 1) or not 1 <= self.blocks <= CLUSTER:
            raise ValueError(f"a cluster of {self.blocks} blocks")
        if self.threads > THREADS_PER_BLOCK or self.threads % WARP:
            raise ValueError(f"a block of {self.threads} threads")

    @property
    def unit_threads(self) -> int:
        """Return the threads of one unit."""
        return prod(spread.threads for spread in self.spreads)

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return self.units * self.unit_threads // self.blocks

    @property
    def registers(self) -> int:
        """Return how many registers the compiler may give a thread, if that is not too many."""
        return REGISTERS_PER_BLOCK // (self.threads * self.min_blocks)

    def spread(self, axis: str) -> Spread:
        """Return the spread of an axis; one that is not listed has one element a range."""
        return next((s for s in self.spreads if s.axis == axis), Spread(axis))

    def bits(self, axis: str) -> tuple[int, ...]:
        """Return the bits of the thread's number that count along `axis`, lowest first."""
        position = 0
        for spread in reversed(self.spreads):
            width = spread.threads.bit_length() - 1
            if spread.axis == axis:
                return tuple(range(position, position + width))
            position += width
        return ()
