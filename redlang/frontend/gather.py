"""Reading array parameters: whole (`x`) or at computed places (`x[i, label[i]]`).

A subscript that is not proved to lie inside its axis guards the load: where it falls outside, the
element is absent. A composite dimension has one subscript, which is taken apart into its axes; one
with a literal inner extent may be ragged, and then the elements behind its end are absent too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redlang.errors import AxisError
from redlang.frontend.draft import ArrayView, Draft
from redlang.frontend.typing import require_integer
from redlang.frontend.wording import are, counted
from redlang.ir.program import Apply, Cast, Dim, Expr, Index, Literal, Load, Size
from redlang.ir.types import I64, Type, compute_type
from redlang.source import Span


def ragged_axis(dim: Dim) -> str:
    """Return the name of the axis that holds the extent of a ragged composite dimension."""
    return f"({' '.join(dim.axes)})"


def read(draft: Draft, view: ArrayView, span: Span) -> Expr:
    """Return an array's element at the index of each of its axes."""
    subscripts: list[Expr] = []
    conditions: list[Expr] = []
    for dim in view.param.dims:
        indices: list[Expr] = [draft.build.index(axis, span=span) for axis in dim.axes]
        whole = ragged_axis(dim)
        if whole in draft.axes:
            conditions.append(inside(draft, dim, span))
            indices[-1] = _clamped_tail(draft, dim, span)
        subscripts += indices
    return _load(draft, view, subscripts, [False] * len(subscripts), conditions, span)


def inside(draft: Draft, dim: Dim, span: Span) -> Expr:
    """Return the condition under which an element lies before the end of a ragged dimension."""
    size = draft.build.size(ragged_axis(dim), span=span)
    return draft.apply("lt", draft.flat(dim.axes, span), size, span=span)


def dim_extent(draft: Draft, dim: Dim, span: Span) -> Expr:
    """Return the extent of a dimension as an expression."""
    if ragged_axis(dim) in draft.axes:
        return draft.build.size(ragged_axis(dim), span=span)
    return draft.product(dim.axes, span)


def subscript(
    draft: Draft, view: ArrayView, places: Sequence[Expr | None], span: Span
) -> Expr | None:
    """Return an array's element at computed places, one for each of its dimensions.

    Raises:
        AxisError: There are more or fewer places than dimensions.
        DTypeError: A place is not an integer.
    """
    name = view.param.name
    if len(places) != len(view.dims):
        raise AxisError(
            f"{name} has {counted(len(view.dims), 'dimension')}, and "
            f"{counted(len(places), 'subscript')} {are(len(places))} given",
            hint=f"one subscript for each of: {' '.join(map(_whole, view.dims)) or 'nothing'}",
            span=span,
        )
    where: dict[str, tuple[Expr, bool]] = {}
    conditions: list[Expr] = []
    for dim, place in zip(view.dims, places, strict=True):
        if place is None:
            return None
        require_integer(place, "a subscript")
        _check_literal(draft, view, dim, place, span)
        if place.type.dtype is not I64:
            place = Cast(place, I64, Type(I64, place.type.axes, place.type.absent), explicit=False)
        _place(draft, dim, _from_end(draft, dim, place, span), where, conditions, span)
    found = [where[axis] for axis in view.param.axes]
    subscripts = [place for place, _ in found]
    return _load(draft, view, subscripts, [guard for _, guard in found], conditions, span)


def _check_literal(draft: Draft, view: ArrayView, dim: Dim, place: Expr, span: Span) -> None:
    """Check a literal subscript now, or have every call check that its element exists.

    Raises:
        AxisError: The dimension's literal extent is too small.
    """
    axis = _whole(dim)
    if not isinstance(place, Literal) or axis not in draft.axes:
        return
    least = int(place.value) + 1 if place.value >= 0 else -int(place.value)
    extent = draft.extent(axis)
    if isinstance(extent, str):
        draft.need(axis, least)
    elif extent < least:
        raise AxisError(
            f"{view.param.name} has {counted(extent, 'element')} along this dimension, and "
            f"subscript {place.value} lies outside",
            hint=f"subscripts run from {-extent} to {extent - 1}" if extent else "",
            span=place.span,
        )


def _load(
    draft: Draft,
    view: ArrayView,
    subscripts: Sequence[Expr],
    guarded: Sequence[bool],
    conditions: Sequence[Expr],
    span: Span,
) -> Expr:
    dtype = compute_type(view.param.dtype)
    axes = draft.union(subscripts)
    absent = any(guarded) or any(part.type.absent for part in subscripts)
    load: Expr = Load(
        view.param.name, tuple(subscripts), tuple(guarded), Type(dtype, axes, absent), span
    )
    for condition in conditions:
        load = draft.build.mask(condition, load, span=span)
    return load


def _clamped_tail(draft: Draft, dim: Dim, span: Span) -> Expr:
    """Return the inner index of a ragged (outer, inner) dimension, held before its end."""
    outer, inner = dim.axes
    size = draft.build.size(ragged_axis(dim), span=span)
    start = draft.apply("mul", draft.build.index(outer), draft.build.size(inner), span=span)
    left = draft.apply("sub", draft.apply("sub", size, start, span=span), 1, span=span)
    return draft.apply("minimum", draft.build.index(inner, span=span), left, span=span)


def _from_end(draft: Draft, dim: Dim, place: Expr, span: Span) -> Expr:
    """Count a negative literal from the end of the dimension."""
    if not isinstance(place, Literal) or place.value >= 0:
        return place
    extent = draft.extent(dim.axes[0]) if len(dim.axes) == 1 else ""
    if isinstance(extent, int):
        return draft.number(extent + int(place.value), span)
    return draft.apply("sub", dim_extent(draft, dim, span), -int(place.value), span=span)


def _place(
    draft: Draft,
    dim: Dim,
    place: Expr,
    where: dict[str, tuple[Expr, bool]],
    conditions: list[Expr],
    span: Span,
) -> None:
    """Say where along each axis of `dim` the subscript points, and whether that is guarded."""
    if len(dim.axes) == 1:
        where[dim.axes[0]] = (place, not in_range(draft, place, dim))
        return
    whole = ragged_axis(dim)
    safe = in_range(draft, place, dim)
    if whole in draft.axes:
        size = draft.build.size(whole, span=span)
        if not safe:
            conditions.append(draft.apply("ge", place, 0, span=span))
            conditions.append(draft.apply("lt", place, size, span=span))
            last = draft.apply("sub", size, 1, span=span)
            place = draft.apply("clip", place, draft.number(0, span), last, span=span)
        safe = True
    for axis in reversed(dim.axes[1:]):
        size = draft.build.size(axis, span=span)
        where[axis] = (draft.apply("mod", place, size, span=span), False)
        place = draft.apply("floordiv", place, size, span=span)
    where[dim.axes[0]] = (place, not safe)


def in_range(draft: Draft, place: Expr, dim: Dim) -> bool:
    """Return whether `place` is proved to lie inside the dimension for every index."""
    if _is_literal(draft, place, dim):
        return True
    if isinstance(place, Index) and _same_extent(draft, place.axis, dim):
        return True
    if len(dim.axes) != 1:
        return False
    extent = draft.extent(dim.axes[0])
    if _is_remainder(draft, place, extent):
        return True
    bounds = interval(draft, place)
    return isinstance(extent, int) and bounds is not None and bounds[0] >= 0 and bounds[1] < extent


def _is_literal(draft: Draft, place: Expr, dim: Dim) -> bool:
    """Return whether `place` was a literal, which `_check_literal` has seen to."""
    if len(dim.axes) > 1 and ragged_axis(dim) not in draft.axes:
        return False
    if isinstance(place, Literal):
        return True
    whole = dim_extent(draft, dim, place.span)
    return (
        isinstance(place, Apply)
        and place.op == "sub"
        and place.arguments[0] == whole
        and isinstance(place.arguments[1], Literal)
        and 0 < place.arguments[1].value <= draft.axes[_whole(dim)].least
    )


def _whole(dim: Dim) -> str:
    """Return the name of the axis that has a dimension's extent."""
    return dim.axes[0] if len(dim.axes) == 1 else ragged_axis(dim)


def _same_extent(draft: Draft, axis: str, dim: Dim) -> bool:
    """Return whether an axis is known to be as long as a dimension."""
    if len(dim.axes) == 1 and draft.extent(axis) == draft.extent(dim.axes[0]):
        return True
    return draft.axes[axis].extent == dim_extent(draft, dim, draft.axes[axis].span)


def _is_remainder(draft: Draft, place: Expr, extent: int | str) -> bool:
    """Return whether `place` is something modulo the extent itself."""
    if not (isinstance(place, Apply) and place.op == "mod"):
        return False
    divisor = place.arguments[1]
    return isinstance(divisor, Size) and draft.extent(divisor.axis) == extent


def interval(draft: Draft, expr: Expr) -> tuple[int, int] | None:
    """Return the smallest and the largest value that an integer expression can have, if known."""
    match expr:
        case Literal(int() as value):
            return int(value), int(value)
        case Index(axis):
            extent = draft.extent(axis)
            return (0, max(extent - 1, 0)) if isinstance(extent, int) else None
        case Size(axis):
            extent = draft.extent(axis)
            return (extent, extent) if isinstance(extent, int) else None
        case Apply("mod", (_, Literal(int() as divisor))) if divisor > 0:
            return 0, int(divisor) - 1
        case Apply("clip", (_, low, high)):
            below, above = interval(draft, low), interval(draft, high)
            if below and above and below[1] <= above[0]:
                return below[0], above[1]
            return None
        case Apply(op, (left, right)) if op in _CORNERS:
            first, second = interval(draft, left), interval(draft, right)
            if first is None or second is None or (op == "floordiv" and second[0] <= 0):
                return None
            corners = [_CORNERS[op](a, b) for a in first for b in second]
            return min(corners), max(corners)
        case _:
            return None


_CORNERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "minimum": min,
    "maximum": max,
}
"""Operators that take their extremes at the corners of their arguments' intervals."""
