"""The arrays that a nest reads and writes, and where: at its own elements, near them, anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from redlang.ir.program import ArrayParam, Index, Load
from redlang.ir.shifts import shift

SECTOR = 32
"""Bytes that memory moves at least."""

Places = Literal["own", "near", "any"]


@dataclass(frozen=True, slots=True)
class Access:
    """An array that a nest reads or writes.

    Attributes:
        array: Its name.
        axes: The axes of the unit that the places depend on.
        size: Bytes of an element.
        whole: Bytes that are asked for at the class's extents.
        unit: The axis along which neighbours are adjacent, or None.
        alignment: As in `Layout`.
        places: Whether it is read at the indices of its axes, at shifts of them, or elsewhere.
        table: Bytes of the array, if less than what is asked for may be read from memory.
        times: How many loads there are at such places.
        written: Whether it is written.
    """

    array: str
    axes: tuple[str, ...]
    size: int
    whole: int
    unit: str | None
    alignment: int
    places: Places = "own"
    table: int = 0
    times: int = 1
    written: bool = False

    @property
    def gathered(self) -> bool:
        """Whether places are computed."""
        return self.places != "own"

    @property
    def by_element(self) -> bool:
        """Whether neighbours are read one by one: they begin at any address."""
        return self.places == "near" and self.alignment == self.size

    @property
    def fetched(self) -> float:
        """Bytes that memory moves for it if nothing is kept: a lone element is a sector."""
        return self.whole * (SECTOR / self.size if self.gathered and self.unit is None else 1)

    @property
    def moved(self) -> float:
        """Bytes that memory must move for it."""
        return min(self.fetched, self.table) if self.gathered else self.whole


def reads(
    loads: Iterable[Load],
    arrays: Callable[[str], ArrayParam],
    size: Callable[[Iterable[str]], int],
    units: Mapping[str, str | None],
    alignments: Mapping[str, int],
) -> Iterator[Access]:
    """Yield what is read of each array: of elements near others that are read, nothing but these.

    Args:
        loads: All loads.
        arrays: From a name to the array.
        size: From axes to the number of elements over them.
        units: As in `Layout`.
        alignments: Likewise.
    """
    found: dict[tuple[str, tuple[str, ...], Places], Access] = {}
    for load in dict.fromkeys(loads):
        array = arrays(load.array)
        name, bytes_, axes = array.name, array.dtype.bytes, load.type.axes
        places, unit, alignment = _places(load, array, units.get(name))
        alignment = alignment or alignments.get(name, bytes_)
        known = found.get((name, axes, places))
        found[name, axes, places] = Access(
            name,
            axes,
            bytes_,
            size(axes) * bytes_,
            unit,
            min(alignment, known.alignment) if known else alignment,
            places,
            table=size(array.axes) * bytes_,
            times=known.times + 1 if known else 1,
        )
    for (name, axes, places), access in found.items():
        beside = places == "near" and (name, axes, "own") in found
        yield replace(access, table=0) if beside else access


def _places(load: Load, array: ArrayParam, unit: str | None) -> tuple[Places, str | None, int]:
    """Return where a load reads, along which axis neighbours lie, and their alignment if known."""
    parts = dict(zip(array.axes, load.subscripts, strict=True))
    part = parts.get(unit or "")
    along = part.axis if isinstance(part, Index) else None
    if all(isinstance(part, Index) for part in load.subscripts):
        return "own", along, 0
    if any(shift(part, axis) is None for axis, part in parts.items()):
        return "any", along, 0
    return ("near", along, 0) if along is not None else ("near", unit, array.dtype.bytes)
