"""Layouts: which dimensions of an array a function of the library means.

A layout names dimensions, and `...` stands for any number of further ones. A call says how many
there are and which of them the function works along; then every dimension has a name.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redlang.errors import ArgumentError

Layout = str
"""Dimensions by name; `...` stands for any number of further ones. As the layout of a result,
`wide[...]` is stored as f64 if an argument is, else as f32, and `i64[...]` as written."""


class Expansion:
    """Layouts with `...` and the chosen axis spelled out."""

    def __init__(
        self, named: list[str], ndim: int, positions: tuple[int, ...], group: str | None = None
    ) -> None:
        single = named[0] if len(named) == 1 else None
        count = len(positions) if single else len(named)
        self.parts = {name: [name] for name in named}
        if single and len(positions) > 1:
            self.parts[single] = [f"{single}{number}" for number in range(len(positions))]
        self.single = single
        self.positions = positions
        self.rest = [f"b{number}" for number in range(ndim - count)]
        if group is not None:
            self.rest[-1] = f"({self.rest[-1]} {group})"

    def axis(self, name: str) -> list[str]:
        """Return the axes that stand for the macro's axis `name`."""
        return self.parts.get(name, [name])

    def __call__(self, layout: Layout) -> str:
        """Return the layout with every dimension by name."""
        parts = layout.split()
        if "..." in parts and self.single in parts:
            # The chosen axis stands where the array has it, among the others.
            dimensions = list(self.rest)
            for position, part in zip(self.positions, self.parts[self.single or ""], strict=True):
                dimensions.insert(position, part)
            return " ".join(dimensions)
        expanded: list[str] = []
        for part in parts:
            if part == "...":
                expanded += self.rest
            else:
                expanded += self.axis(part)
        return " ".join(expanded)


class Length(NamedTuple):
    """The extent of an array's dimension."""

    array: str
    position: int
    extent: int


def disagreement(
    layouts: Mapping[str, Layout], shapes: Mapping[str, Sequence[int]]
) -> tuple[Length, Length, str] | None:
    """Return the lengths of a dimension in which two arrays differ, and its name.

    Args:
        layouts: The expanded layout of each array.
        shapes: Their shapes.

    Returns:
        The later array's length first; None if all agree.
    """
    seen: dict[str, Length] = {}
    for array, layout in layouts.items():
        for position, name in enumerate(layout.split()):
            found = Length(array, position, shapes[array][position])
            first = seen.setdefault(name, found)
            if first.extent != found.extent:
                return found, first, name
    return None


def whole_numbers(given: Any) -> tuple[int, ...]:
    """Return a whole number, or several of them in order; nothing if it is something else."""
    try:
        several = list(given)
    except TypeError:
        several = [given]
    if isinstance(given, Mapping) or any(isinstance(each, bool) for each in several):
        return ()
    try:
        return tuple(map(operator.index, several))
    except TypeError:
        return ()


def ordered(name: str, positions: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the dimensions that `axis=` of a function chooses, each in 0..ndim-1, in order.

    Raises:
        ArgumentError: One is chosen twice.
    """
    found = tuple(sorted({position % ndim for position in positions}))
    if len(found) < len(positions):
        raise ArgumentError(
            f"axis of {name} is {positions}, which names one twice",
            hint=f"once is enough: axis={found[0] if len(found) == 1 else found}",
        )
    return found
