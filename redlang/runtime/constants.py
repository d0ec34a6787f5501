"""Arguments of a stream that do not vary with its axis: one value for all of its elements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from redlang.errors import ArgumentError
from redlang.ir.numerics import Array
from redlang.runtime.arguments import describe
from redlang.runtime.interop import library_of


def check_same(first: Mapping[str, object], second: Mapping[str, object], sides: str) -> None:
    """Raise ArgumentError where an argument in both has two values; NaN is equal to itself.

    Args:
        first: Arguments by name.
        second: Others, not necessarily the same ones.
        sides: What the two are of, for the message.
    """
    for name in first.keys() & second.keys():
        difference = _difference(first[name], second[name])
        if difference:
            raise ArgumentError(
                f"{name} differs between {sides}: {difference}",
                hint=f"{name} is a constant of the fold: one value for all elements",
            )


def _difference(first: object, second: object) -> str:
    """Return how two arguments differ; empty if they do not."""
    if first is second:
        return ""
    one, other = _plain(first), _plain(second)
    if one.shape != other.shape:
        return f"{describe(first)} and {describe(second)}"
    unequal = np.atleast_1d((one != other) & ((one == one) | (other == other)))
    if not unequal.any():
        return ""
    if not one.shape:
        return f"{one} and {other}"
    place = tuple(map(int, np.argwhere(unequal)[0]))
    return f"{one[place]} and {other[place]} at {place}"


def _plain(value: object) -> Array:
    library = library_of(type(value))
    if library is not None:
        return library.to_numpy(value)
    # An array of another library, or a number.
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
