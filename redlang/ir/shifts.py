"""Places that lie a constant distance from an index: neighbours in a signal, a series, an image.

x[m, n + 1?]    -->    x[m, minimum(n + 1, size(n) - 1)]    -->    a shift of 1 along n
"""

from __future__ import annotations

from redlang.ir.program import Apply, Expr, Index, Literal, Size

FAR = 1 << 20
"""Elements that a shifted place is less away: indices inside of a tile have 32 bits."""


def shift(place: Expr, axis: str) -> int | None:
    """Return by how much a place on an axis is further on than the axis's index, or None.

    Args:
        place: The subscript. One that the ends of the axis hold back counts, too.
        axis: The axis of the array that it is for.
    """
    match place:
        case Index(own):
            return 0 if own == axis else None
        case Apply("minimum", (moved, last)) if _is_last(last, axis):
            return _moved(moved, axis)
        case Apply("clip", (moved, Literal(0), last)) if _is_last(last, axis):
            return _moved(moved, axis)
        case _:
            return None


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
