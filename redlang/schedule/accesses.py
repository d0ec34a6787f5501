"""The arrays that a nest reads and writes, and where: at its own elements, near them, anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from redlang.ir.program import ArrayParam, Index, Load
from redlang.ir.shifts import running, shift

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
        by_element: Whether neighbours are read one by one: they begin at any address.
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
    by_element: bool = False
    times: int = 1
    written: bool = False

    @property
    def gathered(self) -> bool:
        """Whether places are computed."""
        return self.places != "own"

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
        places, unit, single = _places(load, array, units.get(name), size)
        alignment = bytes_ if single else alignments.get(name, bytes_)
        known = found.get((name, axes, places))
        found[name, axes, places] = Access(
            name,
            axes,
            bytes_,
            size(axes) * bytes_,
            unit,
            alignment,
            places,
            table=size(array.axes) * bytes_,
            by_element=single or (known is not None and known.by_element),
            times=known.times + 1 if known else 1,
        )
    for (name, axes, places), access in found.items():
        beside = places == "near" and (name, axes, "own") in found
        yield replace(access, table=0) if beside else access


def _places(
    load: Load, array: ArrayParam, unit: str | None, size: Callable[[Iterable[str]], int]
) -> tuple[Places, str | None, bool]:
    """Return where a load reads, along which axis neighbours lie, and whether one by one."""
    parts = dict(zip(array.axes, load.subscripts, strict=True))
    place = parts.get(unit or "")
    if all(isinstance(part, Index) for part in load.subscripts):
        return "own", place.axis if isinstance(place, Index) else None, False
    near = all(shift(part, axis) is not None for axis, part in parts.items())
    along = running(place) if place is not None else frozenset[str]()
    # A run along the longest of them is no shorter than any.
    longest = max(sorted(along), key=lambda axis: size([axis]), default=None)
    return "near" if near else "any", longest, not isinstance(place, Index)
