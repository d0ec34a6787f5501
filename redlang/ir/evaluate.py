"""Evaluate expressions on tiles of named axes: the one meaning that all interpreters share.

A `Scope` says what names stand for and which range of each axis is current. Expressions are
computed node by node in the work type of each node's type; an operand that is absent makes the
result absent. Sums, maxima and the other reductions over a tile are in `ir.reduce`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from redlang.ir import numerics, walk
from redlang.ir.numerics import Array, Precision
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Ref,
    Scalar,
    Size,
)
from redlang.ir.tiles import (
    Tile,
    Window,
    aligned,
    cut,
    expanded,
    merged_axes,
    present_in_all,
    spread,
)
from redlang.ir.types import I64, Type


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """What names mean while an expression is evaluated.

    Attributes:
        precision: `double` or `declared`.
        order: The kernel's axes in order; tiles have their dimensions in this order.
        extents: The extent of every axis.
        arrays: Array parameters, one dimension an axis, in any NumPy type.
        array_axes: The axes of each array parameter.
        scalars: Scalar parameters and captured numbers.
        values: What `Ref`s name: whole definitions, or values of the current windows.
        pointwise: Definitions that are computed where they are read, each behind those it reads.
        windows: Current ranges; an axis that is missing here is seen whole.
    """

    precision: Precision
    order: tuple[str, ...]
    extents: Mapping[str, int]
    arrays: Mapping[str, Array] = field(default_factory=dict)
    array_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scalars: Mapping[str, bool | int | float] = field(default_factory=dict)
    values: Mapping[str, Tile] = field(default_factory=dict)
    pointwise: Mapping[str, Expr] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)

    def window(self, axis: str) -> Window:
        """Return the current range of `axis`."""
        return self.windows.get(axis) or (0, self.extents[axis])

    def length(self, axis: str) -> int:
        """Return the length of the current range of `axis`."""
        start, stop = self.window(axis)
        return stop - start

    def with_values(self, values: Mapping[str, Tile]) -> Scope:
        """Return this scope with further values."""
        return replace(self, values={**self.values, **values})

    def with_pointwise(self, definitions: Mapping[str, Expr]) -> Scope:
        """Return this scope with further definitions that are computed where they are read."""
        return replace(self, pointwise={**self.pointwise, **definitions})

    def with_windows(self, windows: Mapping[str, Window]) -> Scope:
        """Return this scope with other current ranges."""
        return replace(self, windows={**self.windows, **windows})


def evaluate(expr: Expr, scope: Scope) -> Tile:
    """Return the value of `expr` over the current windows of the axes that it varies with.

    A dimension along which the value turned out not to vary may have extent 1.
    """
    with np.errstate(all="ignore"):
        evaluation = _Evaluation(scope)
        needed = _needed(expr, scope)
        for name, value in scope.pointwise.items():
            if name in needed:
                evaluation.definitions[name] = evaluation.tile(value)
        return evaluation.tile(expr)


def evaluate_full(expr: Expr, scope: Scope) -> Tile:
    """Return the value of `expr` with every axis of its type at the length of its window."""
    tile = evaluate(expr, scope)
    axes = merged_axes(scope.order, [expr.type.axes, tile.axes])
    return expanded(tile, axes, {axis: scope.length(axis) for axis in axes})


def _needed(expr: Expr, scope: Scope) -> set[str]:
    """Return the pointwise definitions that `expr` reads, directly or through others."""
    needed: set[str] = set()
    names = list(walk.refs(expr))
    while names:
        name = names.pop()
        if name in scope.pointwise and name not in scope.values and name not in needed:
            needed.add(name)
            names += walk.refs(scope.pointwise[name])
    return needed


class _Evaluation:
    """One evaluation in one scope, with the pointwise definitions that it reads."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.definitions: dict[str, Tile] = {}

    def tile(self, root: Expr) -> Tile:
        """Return the value of `root`: children first, a shared node once, none kept in vain."""
        readers = Counter(id(child) for node in walk.nodes(root) for child in walk.children(node))
        tiles: dict[int, Tile] = {}
        for node in walk.nodes(root):
            keys = [id(child) for child in walk.children(node)]
            tiles[id(node)] = self.compute(node, [tiles[key] for key in keys])
            for key in keys:
                readers[key] -= 1
                if not readers[key]:
                    del tiles[key]
        return tiles[id(root)]

    def compute(self, expr: Expr, parts: list[Tile]) -> Tile:
        """Return the value of one node from those of its children."""
        scope = self.scope
        match expr:
            case Literal(value, type_):
                return Tile((), numerics.literal(value, type_.dtype, scope.precision))
            case Index(axis):
                return Tile((axis,), np.arange(*scope.window(axis), dtype=np.int64))
            case Size(axis):
                return Tile((), np.array(scope.extents[axis], np.int64))
            case Scalar(name, type_):
                return Tile((), numerics.literal(scope.scalars[name], type_.dtype, scope.precision))
            case Load():
                return self.load(expr, parts)
            case Ref(name):
                if name in scope.values:
                    return cut(scope.values[name], scope.windows, scope.extents)
                return self.definitions[name]
            case Apply(op, _, type_):
                tiles, present = self.over_common_axes(parts)
                data = numerics.apply(op, [tile.data for tile in tiles])
                return Tile(tiles[0].axes, self.worked(data, type_), present)
            case Cast(_, to, _, explicit):
                change = numerics.cast if explicit else numerics.convert
                return replace(parts[0], data=change(parts[0].data, to, scope.precision))
            case Mask():
                (test, tile), present = self.over_common_axes(parts)
                shown = test.data if present is None else test.data & present
                return replace(tile, present=shown)
            case Fill():
                (tile, other), _ = self.over_common_axes(parts)
                if tile.present is None:
                    return tile
                data = np.where(tile.present, tile.data, other.data)
                present = None if other.present is None else tile.present | other.present
                return Tile(tile.axes, data, present)
            case _:
                assert_never(expr)

    def worked(self, data: Array, type_: Type) -> Array:
        return numerics.convert(data, type_.dtype, self.scope.precision)

    def over_common_axes(self, tiles: list[Tile]) -> tuple[list[Tile], Array | None]:
        """Return tiles over the union of their axes, and where all of them are present."""
        axes = merged_axes(self.scope.order, [tile.axes for tile in tiles])
        tiles = [aligned(tile, axes) for tile in tiles]
        return tiles, present_in_all(tiles)

    def load(self, expr: Load, places: list[Tile]) -> Tile:
        scope = self.scope
        array, axes = scope.arrays[expr.array], scope.array_axes[expr.array]
        plain = [part.axis for part in expr.subscripts if isinstance(part, Index)]
        if len(plain) == len(axes) == len(set(plain)) and all(
            scope.extents[axis] <= extent for axis, extent in zip(plain, array.shape, strict=True)
        ):
            whole = tuple(slice(*scope.window(axis)) for axis in plain)
            order = merged_axes(scope.order, [plain])
            tile = Tile(order, spread(array[whole], plain, order))
        else:
            tile = self.gather(expr, places, array)
        return replace(tile, data=self.worked(tile.data, expr.type))

    def gather(self, expr: Load, places: list[Tile], array: Array) -> Tile:
        """Read elements at computed places; what lies outside a guarded axis is absent."""
        if not places:
            return Tile((), array)
        tiles, present = self.over_common_axes(places)
        indices = []
        for tile, guard, extent in zip(tiles, expr.guarded, array.shape, strict=True):
            index = numerics.convert(tile.data, I64, self.scope.precision)
            inside = (index >= 0) & (index < extent)
            if guard:
                present = inside if present is None else present & inside
            indices.append(np.where(inside, index, 0))
        if 0 in array.shape:
            shape = np.broadcast_shapes(*(index.shape for index in indices))
            return Tile(tiles[0].axes, np.zeros(shape, array.dtype), present)
        return Tile(tiles[0].axes, array[tuple(indices)], present)
