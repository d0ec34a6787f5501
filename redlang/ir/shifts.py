"""Places that lie a constant distance from an index: neighbours in a signal, a series, an image.

x[m, n + 1?]    -->    x[m, minimum(n + 1, size(n) - 1)]    -->    a shift of 1 along n
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Size
from redlang.ir.types import U64, Type

FAR = 1 << 20
"""Elements that a shifted place is less away: indices inside of a tile have 32 bits."""


def shift(place: Expr, axis: str) -> int | None:
    """Return by how much a place on an axis is further on than the axis's index, or None.

    Args:
        place: The subscript. One that the ends of the axis hold back counts, too.
        axis: The axis of the array that it is for.
    """
    if isinstance(place, Index):
        return 0 if place.axis == axis else None
    held = held_back(place, axis)
    return None if held is None else _moved(held[0], axis)


def held_back(place: Expr, axis: str) -> tuple[Expr, bool] | None:
    """Return a place on an axis before its ends held it back, and whether the first one did, too.

    None is returned for any other place. What the first element does not hold back is behind it.
    """
    match place:
        case Apply("minimum", (moved, last)) if _is_last(last, axis):
            return moved, False
        case Apply("clip", (moved, Literal(0), last)) if _is_last(last, axis):
            return moved, True
        case _:
            return None


def running(place: Expr) -> frozenset[str]:
    """Return the axes along which a place goes on by one element a step."""
    match place:
        case Index(own):
            return frozenset((own,))
        case Apply("minimum" | "clip" | "mod", (moved, *_)):
            return running(moved)
        case Apply("add", (first, second)):
            ends = (running(first), second), (running(second), first)
            return frozenset(a for found, other in ends for a in found if a not in other.type.axes)
        case Apply("sub", (first, second)):
            return running(first) - {*second.type.axes}
        case _:
            return frozenset()


def united(condition: Expr) -> Expr:
    """Return a condition that asks once whether a place lies on its axis, not for either end.

    0 <= i and i < size(n)    -->    u64(i) < u64(size(n))
    """
    parts = list(_conjuncts(condition))
    for above in tuple(parts):
        below = next((part for part in parts if _are_ends(above, part)), None)
        if isinstance(below, Apply):
            # As an unsigned number, a place before the first one lies far behind the last.
            sides = tuple(
                Cast(side, U64, Type(U64, side.type.axes), False) for side in below.arguments
            )
            parts[parts.index(above)] = replace(below, arguments=sides)
            parts.remove(below)
    first, *others = parts
    for other in others:
        axes = (*first.type.axes, *(a for a in other.type.axes if a not in first.type.axes))
        first = Apply("and", (first, other), replace(condition.type, axes=axes))
    return first


def _are_ends(above: Expr, below: Expr) -> bool:
    """Tell whether two conditions ask for both ends of an axis, of a place that may be anywhere."""
    match above, below:
        case Apply("ge", (place, Literal(0))), Apply("lt", (other, Size())):
            return place == other and end_test(above) is None
        case _:
            return False


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Apply) and condition.op == "and":
        for part in condition.arguments:
            yield from _conjuncts(part)
    else:
        yield condition


def end_test(condition: Expr) -> tuple[str, int, bool] | None:
    """Return what is asked of a shifted place, if that is whether it lies in its axis.

    Returns:
        The axis, the distance, and whether it is its end that is asked for, or its beginning.
    """
    match condition:
        case Apply("lt", (place, Size(axis))):
            distance = _moved(place, axis)
        case Apply("ge", (Apply(_, (Index(axis), _) | (_, Index(axis))) as place, Literal(0))):
            distance = _moved(place, axis)
        case _:
            return None
    return None if distance is None else (axis, distance, condition.op == "lt")


def _is_last(place: Expr, axis: str) -> bool:
    match place:
        case Apply("sub", (Size(own), Literal(1))):
            return own == axis
        case _:
            return False


def _moved(place: Expr, axis: str) -> int | None:
    """Return what is added to an axis's index, if it is little."""
    match place:
        case Apply("add", (Index(own), Literal(number)) | (Literal(number), Index(own))):
            distance = int(number)
        case Apply("sub", (Index(own), Literal(number))):
            distance = -int(number)
        case _:
            return None
    return distance if own == axis and abs(distance) < FAR else None
