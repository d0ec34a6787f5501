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
        pointwise: Definitions that are computed where they are read.
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

    def with_windows(self, windows: Mapping[str, Window]) -> Scope:
        """Return this scope with other current ranges."""
        return replace(self, windows={**self.windows, **windows})


def evaluate(expr: Expr, scope: Scope) -> Tile:
    """Return the value of `expr` over the current windows of the axes that it varies with.

    A dimension along which the value turned out not to vary may have extent 1.
    """
    with np.errstate(all="ignore"):
        return _Evaluation(scope, expr).tile(expr)


def evaluate_full(expr: Expr, scope: Scope) -> Tile:
    """Return the value of `expr` with every axis of its type at the length of its window."""
    tile = evaluate(expr, scope)
    axes = merged_axes(scope.order, [expr.type.axes, tile.axes])
    return expanded(tile, axes, {axis: scope.length(axis) for axis in axes})


class _Evaluation:
    """One walk over an expression; values of nodes that are used twice are kept."""

    def __init__(self, scope: Scope, root: Expr) -> None:
        self.scope = scope
        uses = Counter(id(child) for node in walk.nodes(root) for child in walk.children(node))
        self.shared = {key for key, count in uses.items() if count > 1}
        self.kept: dict[int, Tile] = {}
        self.definitions: dict[str, Tile] = {}

    def tile(self, expr: Expr) -> Tile:
        key = id(expr)
        if key in self.kept:
            return self.kept[key]
        tile = self.compute(expr)
        if key in self.shared:
            self.kept[key] = tile
        return tile

    def compute(self, expr: Expr) -> Tile:
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
                return self.load(expr)
            case Ref(name):
                return self.ref(name)
            case Apply(op, arguments, type_):
                tiles, present = self.operands(arguments)
                data = numerics.apply(op, [tile.data for tile in tiles])
                return Tile(tiles[0].axes, self.worked(data, type_), present)
            case Cast(operand, to, _, explicit):
                tile = self.tile(operand)
                change = numerics.cast if explicit else numerics.convert
                return replace(tile, data=change(tile.data, to, scope.precision))
            case Mask(condition, operand):
                (test, tile), present = self.operands((condition, operand))
                shown = test.data if present is None else test.data & present
                return replace(tile, present=shown)
            case Fill(operand, value):
                return self.fill(operand, value)
            case _:
                assert_never(expr)

    def worked(self, data: Array, type_: Type) -> Array:
        return numerics.convert(data, type_.dtype, self.scope.precision)

    def operands(self, exprs: tuple[Expr, ...]) -> tuple[list[Tile], Array | None]:
        """Return the operands over common axes, and where all of them are present."""
        tiles = [self.tile(expr) for expr in exprs]
        axes = merged_axes(self.scope.order, [tile.axes for tile in tiles])
        tiles = [aligned(tile, axes) for tile in tiles]
        return tiles, present_in_all(tiles)

    def fill(self, operand: Expr, value: Expr) -> Tile:
        (tile, other), _ = self.operands((operand, value))
        if tile.present is None:
            return tile
        data = np.where(tile.present, tile.data, other.data)
        present = None if other.present is None else tile.present | other.present
        return Tile(tile.axes, data, present)

    def ref(self, name: str) -> Tile:
        scope = self.scope
        if name in scope.values:
            return cut(scope.values[name], scope.windows, scope.extents)
        if name not in self.definitions:
            expr = scope.pointwise[name]
            inner = _Evaluation(scope, expr)
            inner.definitions = self.definitions
            self.definitions[name] = inner.tile(expr)
        return self.definitions[name]

    def load(self, expr: Load) -> Tile:
        scope = self.scope
        array, axes = scope.arrays[expr.array], scope.array_axes[expr.array]
        plain = [part.axis for part in expr.subscripts if isinstance(part, Index)]
        if len(plain) == len(axes) == len(set(plain)) and all(
            scope.extents[axis] <= extent for axis, extent in zip(plain, array.shape, strict=True)
        ):
            places = tuple(slice(*scope.window(axis)) for axis in plain)
            order = merged_axes(scope.order, [plain])
            tile = Tile(order, spread(array[places], plain, order))
        else:
            tile = self.gather(expr, array)
        return replace(tile, data=self.worked(tile.data, expr.type))

    def gather(self, expr: Load, array: Array) -> Tile:
        """Read elements at computed places; what lies outside a guarded axis is absent."""
        tiles, present = self.operands(expr.subscripts)
        if not tiles:
            return Tile((), array)
        places = []
        for tile, guard, extent in zip(tiles, expr.guarded, array.shape, strict=True):
            place = numerics.convert(tile.data, I64, self.scope.precision)
            inside = (place >= 0) & (place < extent)
            if guard:
                present = inside if present is None else present & inside
            places.append(np.where(inside, place, 0))
        if 0 in array.shape:
            shape = np.broadcast_shapes(*(place.shape for place in places))
            return Tile(tiles[0].axes, np.zeros(shape, array.dtype), present)
        return Tile(tiles[0].axes, array[tuple(places)], present)
