"""What the pieces of a stream share: element types, extents, what does not vary with its axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from redlang.errors import ArgumentError
from redlang.ir.numerics import Array
from redlang.ir.program import ArrayParam, Program
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


def check_types(new: Program, old: Program) -> None:
    """Raise ArgumentError unless a chunk makes the program that earlier ones made."""
    if new == old:
        return
    for one, other in zip(new.params, old.params, strict=False):
        if one.name == other.name and one.dtype != other.dtype:
            raise ArgumentError(
                f"{one.name} holds {one.dtype.name} in this chunk, and {other.dtype.name} in "
                "earlier ones",
                hint=f"convert it to {other.dtype.name} first, or begin another fold",
            )
    raise ArgumentError(
        f"{new.name} or a name that it reads from outside is another one than for earlier chunks",
        hint="begin another fold",
    )


def check_extents(
    program: Program,
    new: Mapping[str, int],
    old: Mapping[str, int],
    axis: str,
    sides: tuple[str, str],
) -> None:
    """Raise ArgumentError unless all axes but the streamed one are as long as before.

    Args:
        program: Its arrays are named.
        new: Extents of a chunk or of another fold.
        old: Extents of what it is joined to.
        axis: The streamed axis.
        sides: What the two are, for the message.
    """
    for name, extent in new.items():
        if name == axis or old.get(name, extent) == extent:
            continue
        having = [p.name for p in program.params if isinstance(p, ArrayParam) and name in p.axes]
        subject = f"{' and '.join(having)}: " if having else ""
        raise ArgumentError(
            f"{subject}{sides[0]} has {name} = {extent}, and {sides[1]} had {name} = {old[name]}",
            hint=f"chunks are pieces along {axis}, and differ only in how long they are",
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
