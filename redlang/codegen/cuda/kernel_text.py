"""What the emitter is told about the arrays of a launch, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from redlang.codegen.arguments import Extent, Stride


@dataclass(frozen=True, slots=True)
class ArrayClass:
    """What every launch of a specialisation guarantees of one array.

    Attributes:
        strides: Strides in elements that are the same in every launch, by axis; 1 for the axis
            along which elements are adjacent.
        alignment: Bytes that divide the address and every other stride.
    """

    strides: Mapping[str, int]
    alignment: int


Results: TypeAlias = Literal["stay", "fit", "leave"]
"""What becomes of results in the L2 cache until somebody reads them: they stay there beside what is
read, they fit without it, or they leave while they are written."""


@dataclass(frozen=True, slots=True)
class Classes:
    """What every launch of a specialisation guarantees.

    Attributes:
        arrays: By name: parameters and `result.<i>`.
        multiples: A number that divides the extent of each axis; 1 if missing.
        limits: The largest extent of an axis, where it is bounded.
        native_f8: Whether the target converts f8 itself (compute capability 8.9 and up).
        results: What becomes of the results in the L2 cache.
        filled: Axes of which there is something.
    """

    arrays: Mapping[str, ArrayClass]
    multiples: Mapping[str, int]
    limits: Mapping[str, int]
    native_f8: bool = True
    results: Results = "stay"
    filled: frozenset[str] = frozenset()

    def multiple(self, axis: str) -> int:
        """Return a number that divides the extent of `axis`."""
        return self.multiples.get(axis, 1)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an array's first element: a parameter, `result.<i>` or a workspace."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar parameter or captured number, in a compute type."""

    name: str
    code: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a scalar parameter that lies on the device."""

    name: str


@dataclass(frozen=True, slots=True)
class Counters:
    """The address of 32-bit counters that are 0 before and after every launch.

    A unit has one of them, or a pair for each posted word of each block that shares it.
    """


Parameter: TypeAlias = Address | Extent | Stride | Number | Pointer | Counters


@dataclass(frozen=True, slots=True)
class Prefetch:
    """What prefetches to L2 what a block reads first.

    Attributes:
        lines: The text.
        blocks: How many blocks of an SM should.
    """

    lines: tuple[str, ...]
    blocks: int


@dataclass(frozen=True, slots=True)
class KernelText:
    """A generated kernel.

    Attributes:
        entry: The name of its function.
        source: A module's text.
        parameters: Its parameters in order.
        threads: Threads a block.
        min_blocks: Blocks to leave registers for on one SM.
        shared_bytes: Dynamic shared memory of a block.
        grid: Axes that units cover and the tile of each, outermost first.
        units: Units a block.
        cluster: Blocks of a cluster, which share a unit.
        segments: The pseudo axis that numbers the blocks which share a unit, or empty.
        posted: Words that each of those blocks posts to the last one; 0 if they count themselves.
        opening: How many lines of its body only find out which unit a block has.
        prefetch: What may be done then, before anything is waited for.
        follows: Whether it waits for the kernel before it itself, and may be launched early.
    """

    entry: str
    source: str
    parameters: tuple[Parameter, ...]
    threads: int
    min_blocks: int
    shared_bytes: int
    grid: tuple[tuple[str, int], ...]
    units: int = 1
    cluster: int = 1
    segments: str = ""
    posted: int = 0
    opening: int = 0
    prefetch: Prefetch | None = None
    follows: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the type code of each parameter."""
        return tuple(map(parameter_code, self.parameters))


def parameter_code(parameter: Parameter) -> str:
    """Return the type code of a kernel parameter; addresses are passed as integers."""
    return parameter.code if isinstance(parameter, Number) else "i64"
