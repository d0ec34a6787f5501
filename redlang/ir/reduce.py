"""Reduce expressions over tiles, and join partial results.

This is what `Reduce`, the `Partial` and `Combine` of a sweep and the folds of the loop IR do.

Every reduction sees its elements row-major over the reduced axes. Work that would need more than
`LIMIT` elements at once is cut along an axis that is kept, so memory stays bounded; a sum of
products may be a matrix product, see `ir.products`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from redlang.ir import folds
from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.numerics import Array, convert, lowest
from redlang.ir.products import contract, find_product, volume
from redlang.ir.program import Expr, Monoid, Reduce
from redlang.ir.tiles import Tile, aligned, merged_axes, present_in_all, spread

LIMIT = 1 << 22
"""Elements that one step of a reduction may hold: 32 MiB of float64."""

SLOT = "slot"
"""The axis of a top-k list whose type does not name one."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """What `Reduce`, `Partial` and a fold of the loop IR have in common.

    Attributes:
        op: A reduction of `ir.operators`, `mantissa` or `monoid`.
        over: The reduced axes, row-major.
        operands: One expression; several only for a monoid.
        condition: Elements for which it is false take no part.
        k: Slots of a top-k list.
        slot: The axis that counts them.
        monoid: The user's monoid.
        key: What argmax, argmin and topk order by, where that is not the operand itself.
    """

    op: str
    over: tuple[str, ...]
    operands: tuple[Expr, ...]
    condition: Expr | None = None
    k: int | None = None
    slot: str = SLOT
    monoid: Monoid | None = None
    key: Expr | None = None


def reduce(node: Reduce, scope: Scope, order: Reduce | None = None) -> tuple[Tile, ...]:
    """Return the results of a finished reduction, one for each of its types.

    Args:
        node: The reduction.
        scope: What its names mean.
        order: For argmax, argmin and topk a reduction whose order of elements holds instead.

    Unlike those of `partial`, the results of argmax, argmin and topk have one index for each axis,
    and a monoid is finished.
    """
    slot = node.new_axis or SLOT
    reduction = Reduction(
        node.op, node.axes, node.operands, node.condition, node.k, slot, node.monoid
    )
    if order is not None and order.operand != node.operand:
        reduction = replace(reduction, op=order.op, key=order.operand)
    parts = partial(reduction, scope)
    if node.op in ("argmax", "argmin"):
        parts = _unravel(parts[1], node.axes, scope)
    elif node.op == "topk":
        parts = (parts[0], *_unravel(parts[1], node.axes, scope))
    elif node.monoid is not None:
        parts = _monoid_step(node.monoid.finish, {"a": parts}, scope)
    return tuple(
        replace(part, data=convert(part.data, type_.dtype, scope.precision))
        for part, type_ in zip(parts, node.types, strict=True)
    )


def partial(node: Reduction, scope: Scope) -> tuple[Tile, ...]:
    """Reduce over the current windows of the axes `over`.

    Returns:
        One tile for each name of the step: argmax and argmin give value and row-major index over
        the whole extents, topk sorted values and indices over the axis `slot`, mantissa a float
        and an exponent, a monoid its state.
    """
    with np.errstate(all="ignore"):
        return _bounded(node, scope)


def combine(
    op: str,
    left: Sequence[Tile],
    right: Sequence[Tile],
    scope: Scope,
    *,
    k: int | None = None,
    slot: str = SLOT,
    monoid: Monoid | None = None,
) -> tuple[Tile, ...]:
    """Join two partial results; `left` holds the earlier elements."""
    with np.errstate(all="ignore"):
        if monoid is not None:
            return _monoid_step(monoid.combine, {"a": left, "b": right}, scope)
        axes = merged_axes(scope.order, [tile.axes for tile in (*left, *right)])
        if op == "topk":
            axes = (*(axis for axis in axes if axis != slot), slot)
        sides = [tuple(aligned(tile, axes).data for tile in side) for side in (left, right)]
        if op == "topk":
            # The initial list is one value that stands for k slots.
            sides = [tuple(_slots(part, k) for part in side) for side in sides]
        return _tiles(folds.combine(op, sides[0], sides[1], k), axes, scope)


def _slots(part: Array, k: int | None) -> Array:
    assert k is not None
    return np.broadcast_to(part, (*part.shape[:-1], k)) if part.shape[-1] == 1 else part


def _kept(node: Reduction, scope: Scope) -> tuple[str, ...]:
    conditions = () if node.condition is None else (node.condition,)
    groups = [expr.type.axes for expr in (*node.operands, *conditions)]
    return tuple(axis for axis in merged_axes(scope.order, groups) if axis not in node.over)


def _bounded(node: Reduction, scope: Scope) -> tuple[Tile, ...]:
    """Reduce in pieces along the longest kept axis until a piece needs at most `LIMIT` elements."""
    kept = _kept(node, scope)
    needed = volume((*kept, *node.over), scope)
    product = find_product(node.operands[0], node.condition, scope) if node.op == "sum" else None
    if product is not None:
        operands = [expr.type.axes for expr in (product.left, product.right, *product.conditions)]
        largest = max(volume(axes, scope) for axes in (kept, *operands))
        if largest < needed:
            whole = contract(product, node.over, kept, scope) if largest <= LIMIT else None
            if whole is not None:
                return (whole,)
            needed = needed if largest <= LIMIT else largest
    longest = max(kept, key=scope.length, default=None)
    if needed <= LIMIT or longest is None or scope.length(longest) == 1:
        return _direct(node, kept, scope)
    start, stop = scope.window(longest)
    pieces = min(stop - start, -(-needed // LIMIT))
    bounds = [start + (stop - start) * i // pieces for i in range(pieces + 1)]
    parts = [
        _bounded(node, scope.with_windows({longest: window}))
        for window in itertools.pairwise(bounds)
    ]
    return tuple(_joined(same, longest) for same in zip(*parts, strict=True))


def _joined(pieces: Sequence[Tile], axis: str) -> Tile:
    place = pieces[0].axes.index(axis)
    return replace(pieces[0], data=np.concatenate([piece.data for piece in pieces], axis=place))


def _direct(node: Reduction, kept: tuple[str, ...], scope: Scope) -> tuple[Tile, ...]:
    """Reduce with the reduced axes flattened into one last dimension."""
    tiles = [evaluate(operand, scope) for operand in node.operands]
    visible = present_in_all([aligned(tile, (*kept, *node.over)) for tile in tiles])
    if node.condition is not None:
        test = aligned(evaluate(node.condition, scope), (*kept, *node.over))
        for part in (test.data, test.present):
            if part is not None:
                visible = part if visible is None else visible & part
    elements = [_flat(tile.data, tile.axes, kept, node.over, scope) for tile in tiles]
    if visible is not None:
        visible = _flat(visible, (*kept, *node.over), kept, node.over, scope)
    if node.monoid is not None:
        return _fold_monoid(node.monoid, elements, visible, kept, scope)
    if node.key is None:
        parts = folds.fold(node.op, elements[0], visible, node.k)
    else:
        parts = _ordered(node, node.key, elements[0], visible, kept, scope)
    if node.op in ("argmax", "argmin", "topk"):
        parts = (parts[0], _global_index(parts[1], node.over, scope))
    return _tiles(parts, (*kept, node.slot) if node.op == "topk" else kept, scope)


def _ordered(
    node: Reduction,
    key: Expr,
    values: Array,
    visible: Array | None,
    kept: tuple[str, ...],
    scope: Scope,
) -> folds.Parts:
    """Select by a key; what is selected are the operand's own values."""
    tile = evaluate(key, scope)
    keys = _flat(tile.data, tile.axes, kept, node.over, scope)
    best, places = folds.fold(node.op, keys, visible, node.k)
    if node.op != "topk" or not values.shape[-1]:
        return best, places
    chosen = np.take_along_axis(values, np.maximum(places, 0), axis=-1)
    return np.where(places < 0, lowest(values.dtype), chosen), places


def _flat(
    array: Array, axes: Sequence[str], kept: tuple[str, ...], over: tuple[str, ...], scope: Scope
) -> Array:
    shape = [scope.length(axis) for axis in kept]
    lengths = [scope.length(axis) for axis in over]
    wide = np.broadcast_to(spread(array, axes, (*kept, *over)), (*shape, *lengths))
    return wide.reshape(*shape, math.prod(lengths))


def _tiles(parts: folds.Parts, axes: tuple[str, ...], scope: Scope) -> tuple[Tile, ...]:
    """Name the dimensions of results, in the kernel's order."""
    order = merged_axes(scope.order, [axes])
    return tuple(Tile(order, spread(np.asarray(part), axes, order)) for part in parts)


def _global_index(place: Array, over: tuple[str, ...], scope: Scope) -> Array:
    """Return positions in the windows as row-major indices over whole axes; -1 stays."""
    index = np.zeros_like(place)
    rest, stride = np.maximum(place, 0), 1
    for axis in reversed(over):
        length = max(scope.length(axis), 1)
        index = index + (rest % length + scope.window(axis)[0]) * stride
        rest, stride = rest // length, stride * scope.extents[axis]
    return np.where(place < 0, place, index)


def _unravel(index: Tile, over: tuple[str, ...], scope: Scope) -> tuple[Tile, ...]:
    """Return one index for each axis from a row-major one; -1 gives -1 everywhere."""
    rest = np.maximum(index.data, 0)
    found: list[Tile] = []
    for axis in reversed(over):
        extent = max(scope.extents[axis], 1)
        found.append(replace(index, data=np.where(index.data < 0, -1, rest % extent)))
        rest = rest // extent
    return tuple(reversed(found))


def _monoid_step(
    exprs: tuple[Expr, ...], sides: dict[str, Sequence[Tile]], scope: Scope
) -> tuple[Tile, ...]:
    values = {f"{side}.{i}": tile for side, tiles in sides.items() for i, tile in enumerate(tiles)}
    inner = scope.with_values(values)
    return tuple(evaluate(expr, inner) for expr in exprs)


def _fold_monoid(
    monoid: Monoid,
    elements: list[Array],
    visible: Array | None,
    kept: tuple[str, ...],
    scope: Scope,
) -> tuple[Tile, ...]:
    """Fold by a tree over neighbours, so that order is kept and commutativity is not needed."""
    axes = (*kept, "element")
    inner = replace(scope, order=(*scope.order, "element"), windows={})

    def step(exprs: tuple[Expr, ...], sides: dict[str, Sequence[Array]]) -> folds.Parts:
        tiles = {side: [Tile(axes, part) for part in parts] for side, parts in sides.items()}
        return tuple(
            np.broadcast_to(aligned(tile, axes).data, shape(sides))
            for tile in _monoid_step(exprs, dict(tiles), inner)
        )

    def shape(sides: dict[str, Sequence[Array]]) -> tuple[int, ...]:
        return next(part.shape for parts in sides.values() for part in parts)

    def join(left: folds.Parts, right: folds.Parts) -> folds.Parts:
        return step(monoid.combine, {"a": left, "b": right})

    lifted = step(monoid.lift, {"x": elements})
    shown = np.broadcast_to(True if visible is None else visible, elements[0].shape)
    empty = tuple(evaluate(expr, inner).data for expr in monoid.init)
    return _tiles(folds.tree(lifted, shown, join, empty), kept, scope)
