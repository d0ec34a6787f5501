"""Reductions on NumPy arrays: fold along the last axis, and join two partial results.

`visible` says which elements take part; None means all do. What is not visible is replaced by the
identity before anything is computed, so that neither its value nor a NaN in it can show.

Sums of floats add pairwise along the last axis, which NumPy does for contiguous data: the error of
n terms is about (16 + log2 n) units in the last place of the sum of their magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from redlang.ir.numerics import Array, highest, is_nan, lowest, maximum, minimum

Parts: TypeAlias = tuple[Array, ...]


def fold(op: str, values: Array, visible: Array | None, k: int | None = None) -> Parts:
    """Reduce `values` of shape (..., n) along the last axis.

    Args:
        op: A reduction of `ir.operators`, or `mantissa`.
        values: Elements in their work type.
        visible: Truth values that broadcast to the shape of `values`.
        k: Slots of a top-k list.

    Returns:
        One array of shape (...); for argmax and argmin value and position (-1 for none); for
        topk values and positions of shape (..., k), best first; for mantissa a float and an
        int64 exponent.
    """
    if values.dtype.kind == "b" and op in ("sum", "prod", "topk"):
        values = values.astype(np.int64)
    match op:
        case "sum":
            return (np.add.reduce(_hide(values, visible, 0), axis=-1),)
        case "prod":
            return (_product(_hide(values, visible, 1)),)
        case "mantissa":
            return _mantissa(_hide(values, visible, 1))
        case "max":
            return (_extreme(_hide(values, visible, lowest(values.dtype)), largest=True),)
        case "min":
            return (_extreme(_hide(values, visible, highest(values.dtype)), largest=False),)
        case "any":
            return (np.logical_or.reduce(_hide(values != 0, visible, False), axis=-1),)
        case "all":
            return (np.logical_and.reduce(_hide(values != 0, visible, True), axis=-1),)
        case "count":
            chosen = _hide(values != 0, visible, False)
            return (np.add.reduce(chosen, axis=-1, dtype=np.int64),)
        case "argmax" | "argmin":
            return _first_extreme(values, visible, largest=op == "argmax")
        case "topk":
            assert k is not None
            return _top(
                values, np.broadcast_to(True if visible is None else visible, values.shape), k
            )
        case _:
            raise ValueError(f"no reduction {op!r}")


def combine(op: str, left: Parts, right: Parts, k: int | None = None) -> Parts:
    """Join two partial results of `fold`; `left` holds the earlier elements."""
    match op:
        case "sum" | "count":
            return (left[0] + right[0],)
        case "prod":
            return (left[0] * right[0],)
        case "mantissa":
            return _normalised(left[0] * right[0], left[1] + right[1])
        case "max":
            return (maximum(left[0], right[0]),)
        case "min":
            return (minimum(left[0], right[0]),)
        case "any":
            return (np.logical_or(left[0], right[0]),)
        case "all":
            return (np.logical_and(left[0], right[0]),)
        case "argmax" | "argmin":
            return _better(left, right, largest=op == "argmax")
        case "topk":
            assert k is not None
            values = np.concatenate(np.broadcast_arrays(left[0], right[0]), axis=-1)
            indices = np.concatenate(np.broadcast_arrays(left[1], right[1]), axis=-1)
            best, places = _top(values, indices >= 0, k)
            return best, np.where(places < 0, -1, np.take_along_axis(indices, places, axis=-1))
        case _:
            raise ValueError(f"no reduction {op!r}")


def tree(
    parts: Parts, visible: Array, join: Callable[[Parts, Parts], Parts], empty: Parts
) -> Parts:
    """Fold tuples of arrays of shape (..., n) by joining neighbours; `empty` if none is visible.

    The order of elements is kept, and an element that is not visible is never joined, so `join`
    needs to be associative only.
    """
    while visible.shape[-1] > 1:
        pairs = visible.shape[-1] // 2
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        seen_left, seen_right = visible[..., first], visible[..., second]
        left = tuple(part[..., first] for part in parts)
        right = tuple(part[..., second] for part in parts)
        joined = tuple(
            np.where(seen_left & seen_right, both, np.where(seen_left, one, other))
            for both, one, other in zip(join(left, right), left, right, strict=True)
        )
        rest = slice(2 * pairs, None)
        parts = tuple(
            np.concatenate([new, old[..., rest]], axis=-1)
            for new, old in zip(joined, parts, strict=True)
        )
        visible = np.concatenate([seen_left | seen_right, visible[..., rest]], axis=-1)
    if visible.shape[-1] == 0:
        return tuple(np.broadcast_to(part, visible.shape[:-1]) for part in empty)
    seen = visible[..., 0]
    return tuple(
        np.where(seen, part[..., 0], nothing) for part, nothing in zip(parts, empty, strict=True)
    )


def _hide(values: Array, visible: Array | None, identity: object) -> Array:
    hidden = values if visible is None else np.where(visible, values, values.dtype.type(identity))
    return np.ascontiguousarray(hidden)


def _extreme(values: Array, *, largest: bool) -> Array:
    """Return max or min with NaN propagating and -0 below +0."""
    if largest:
        best = np.maximum.reduce(values, axis=-1, initial=lowest(values.dtype))
    else:
        best = np.minimum.reduce(values, axis=-1, initial=highest(values.dtype))
    best = np.asarray(best)
    if best.dtype.kind != "f" or not np.any(best == 0):
        return best
    negative = np.signbit(values)
    winning = ((values == 0) & (~negative if largest else negative)).any(axis=-1)
    zero = np.where(winning == largest, 0.0, -0.0).astype(best.dtype)
    return np.where(best == 0, zero, best)


def _product(values: Array) -> Array:
    if values.dtype.kind != "f":
        return np.asarray(np.multiply.reduce(values, axis=-1))
    mantissa, exponent = _mantissa(values)
    return np.asarray(
        np.ldexp(mantissa, np.clip(exponent, -5000, 5000).astype(np.int32)), values.dtype
    )


def _mantissa(values: Array) -> Parts:
    """Return a product as mantissa and exponent, so that no partial product over- or underflows."""
    mantissa, exponent = _normalised(values, np.zeros(values.shape, np.int64))
    while mantissa.shape[-1] > 1:
        pairs = mantissa.shape[-1] // 2
        left, right, rest = slice(0, pairs), slice(pairs, 2 * pairs), slice(2 * pairs, None)
        product, power = _normalised(
            mantissa[..., left] * mantissa[..., right], exponent[..., left] + exponent[..., right]
        )
        mantissa = np.concatenate([product, mantissa[..., rest]], axis=-1)
        exponent = np.concatenate([power, exponent[..., rest]], axis=-1)
    if mantissa.shape[-1] == 0:
        shape = mantissa.shape[:-1]
        return np.full(shape, 0.5, values.dtype), np.ones(shape, np.int64)
    return mantissa[..., 0], exponent[..., 0]


def _normalised(mantissa: Array, exponent: Array) -> Parts:
    fraction, shift = np.frexp(mantissa)
    return np.asarray(fraction), np.asarray(exponent + shift, np.int64)


def _first_extreme(values: Array, visible: Array | None, *, largest: bool) -> Parts:
    """Return the best value and its first position; NaN is best of all, -0 equals +0."""
    worst = lowest(values.dtype) if largest else highest(values.dtype)
    if values.shape[-1] == 0:
        shape = values.shape[:-1]
        return np.full(shape, worst, values.dtype), np.full(shape, -1, np.int64)
    shown = np.broadcast_to(True if visible is None else visible, values.shape)
    nan = is_nan(values) & shown
    numbers = np.where(shown & ~nan, values, worst)
    reduce = np.maximum.reduce if largest else np.minimum.reduce
    best = reduce(numbers, axis=-1, keepdims=True)
    hit = np.where(nan.any(axis=-1, keepdims=True), nan, shown & ~nan & (values == best))
    place = np.argmax(hit, axis=-1)
    value = np.take_along_axis(values, place[..., np.newaxis], axis=-1)[..., 0]
    none = ~hit.any(axis=-1)
    return np.where(none, worst, value), np.where(none, -1, place).astype(np.int64)


def _better(left: Parts, right: Parts, *, largest: bool) -> Parts:
    """Return the better of two (value, position) pairs; the left one wins ties."""
    left_nan, right_nan = is_nan(left[0]), is_nan(right[0])
    beats = right[0] > left[0] if largest else right[0] < left[0]
    ahead = ~left_nan & (right_nan | beats)
    take = (right[1] >= 0) & ((left[1] < 0) | ahead)
    return np.where(take, right[0], left[0]), np.where(take, right[1], left[1])


def _top(values: Array, visible: Array, k: int) -> Parts:
    """Return the k best values and their positions: NaN first, then downwards, ties in order."""
    nan = is_nan(values)
    group = np.where(visible, np.where(nan, 0, 1), 2)
    # For integers ~v = -v - 1 falls as v grows and cannot overflow.
    key = np.where(nan, 0, -values) if values.dtype.kind == "f" else ~values
    order = np.lexsort((key, group), axis=-1)[..., :k]
    found = np.take_along_axis(group, order, axis=-1) < 2
    best = np.where(found, np.take_along_axis(values, order, axis=-1), lowest(values.dtype))
    places = np.where(found, order, -1).astype(np.int64)
    missing = k - places.shape[-1]
    if missing > 0:
        padding = [(0, 0)] * (places.ndim - 1) + [(0, missing)]
        best = np.pad(best, padding, constant_values=lowest(values.dtype))
        places = np.pad(places, padding, constant_values=-1)
    return best, places
