"""The shape of a tile in memory: which bytes each register of a thread comes from.

A thread's tile is moved in *pieces* of up to 16 bytes. A piece holds `width` neighbouring
elements; the pieces lie along a few dimensions, each with its own distance in memory and in the
tile. Axes may be guarded: elements outside `[low, left)` of the axis, counted from the thread's
first element, are not touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from redlang.ir.types import DTYPES


@dataclass(frozen=True, slots=True)
class Along:
    """One dimension along which a tile's pieces lie.

    Attributes:
        count: Positions along it.
        place: Tile elements between neighbouring positions.
        step: Bytes between neighbouring positions, or None for a runtime argument (i64).
        axis: The guarded axis that this dimension walks, or empty.
        reach: Elements of that axis between neighbouring positions.
        start: The first position in memory; in the tile it is the first in any case.
    """

    count: int
    place: int
    step: int | None
    axis: str = ""
    reach: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """A guarded axis.

    Attributes:
        axis: Its name, as in `Along.axis`.
        ragged: Whether the end (and, with `head`, the start) may fall inside a piece that lies
            along this axis; else such a piece is there as a whole or not at all.
        head: Whether elements before `low` are left out too; adds the argument `low`.
    """

    axis: str
    ragged: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """How a thread's tile lies in memory.

    Attributes:
        dtype: Storage type of the elements.
        width: Elements of one piece; a power of two, at most 16 bytes.
        along: The dimensions of the pieces.
        place: Tile elements between neighbouring elements of a piece.
        axis: The guarded axis that a piece's own elements walk, or empty.
        guards: The guarded axes, in the order of their arguments.
    """

    dtype: str
    width: int
    along: tuple[Along, ...] = ()
    place: int = 1
    axis: str = ""
    guards: tuple[Guard, ...] = ()

    def __post_init__(self) -> None:
        """Check that the piece can be moved in whole registers."""
        size = DTYPES[self.dtype].bytes * self.width
        assert size in (1, 2, 4, 8, 16), self
        # Elements of a ragged piece are inserted into 32-bit words.
        assert self.width == 1 or size >= 4 or not any(g.ragged for g in self.guards), self

    @property
    def count(self) -> int:
        """Return the number of elements of the tile."""
        total = self.width
        for dimension in self.along:
            total *= dimension.count
        return total

    @property
    def runtime_steps(self) -> int:
        """Return how many steps are runtime arguments."""
        return sum(1 for dimension in self.along if dimension.step is None)

    @property
    def guard_arguments(self) -> tuple[str, ...]:
        """Return what the guards' arguments mean, in order."""
        names: list[str] = []
        for guard in self.guards:
            names.append(f"left.{guard.axis}")
            if guard.head:
                names.append(f"low.{guard.axis}")
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Piece:
    """One memory access of a thread.

    Attributes:
        places: Where its elements go in the tile.
        offset: Constant bytes from the thread's address.
        coefficients: Multiples of the runtime steps, in their order.
        reaches: For each guarded axis, the element of the axis where the piece starts.
    """

    places: tuple[int, ...]
    offset: int
    coefficients: tuple[int, ...]
    reaches: dict[str, int]


def pieces(access: Access) -> Iterator[Piece]:
    """Yield the pieces of a tile, last dimension fastest."""
    for position in itertools.product(*(range(dimension.count) for dimension in access.along)):
        start = offset = 0
        coefficients: list[int] = []
        reaches = {guard.axis: 0 for guard in access.guards}
        for index, dimension in zip(position, access.along, strict=True):
            start += index * dimension.place
            far = dimension.start + index
            if dimension.step is None:
                coefficients.append(far)
            else:
                offset += far * dimension.step
            if dimension.axis in reaches:
                reaches[dimension.axis] += far * dimension.reach
        places = tuple(start + element * access.place for element in range(access.width))
        yield Piece(places, offset, tuple(coefficients), reaches)
