"""Sums of products as matrix products, for the reference interpreter's speed.

    sum over K of f1 * f2 * ... * fn   -->   matmul(left, right)

Done where the product over all axes would be larger than its factors. It has the accuracy of
NumPy's BLAS, and is refused where a NaN or an infinity could be hidden by it or move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.numerics import Array
from redlang.ir.program import Apply, Expr, Mask, Ref
from redlang.ir.tiles import Tile, aligned, expanded, merged_axes, spread


@dataclass(frozen=True, slots=True)
class Product:
    """A summed product: its two factors, and the conditions under which an element takes part."""

    left: Expr
    right: Expr
    conditions: tuple[Expr, ...]


def volume(axes: Sequence[str], scope: Scope) -> int:
    """Return the number of elements over the current windows of `axes`."""
    return math.prod(scope.length(axis) for axis in dict.fromkeys(axes))


def find_product(expr: Expr, condition: Expr | None, scope: Scope) -> Product | None:
    """Return the factors of a summed product, looking through masks and pointwise definitions."""
    conditions = [] if condition is None else [condition]
    while True:
        if isinstance(expr, Ref) and expr.name in scope.pointwise and expr.name not in scope.values:
            expr = scope.pointwise[expr.name]
        elif isinstance(expr, Mask):
            conditions.append(expr.condition)
            expr = expr.operand
        else:
            break
    if not isinstance(expr, Apply) or expr.op != "mul":
        return None
    left, right = expr.arguments
    if scope.precision == "double":
        left, right = _grouped(_flattened(expr), scope) or (left, right)
    return Product(left, right, tuple(conditions))


def _flattened(expr: Expr) -> list[Expr]:
    if isinstance(expr, Apply) and expr.op == "mul":
        return [factor for part in expr.arguments for factor in _flattened(part)]
    return [expr]


def _grouped(factors: list[Expr], scope: Scope) -> tuple[Expr, Expr] | None:
    """Return a product of two from one of many: what fits the largest factor's axes, and the rest.

    Another order of multiplications is another rounding, which float64 has to spare, and may be
    another overflow, which is why only the double precision does this.
    """
    largest = max(factors, key=lambda factor: volume(factor.type.axes, scope))
    fits = [factor for factor in factors if set(factor.type.axes) <= set(largest.type.axes)]
    rest = [factor for factor in factors if not set(factor.type.axes) <= set(largest.type.axes)]
    if not rest:
        return None
    return _multiplied(fits, scope), _multiplied(rest, scope)


def _multiplied(factors: list[Expr], scope: Scope) -> Expr:
    product, *rest = factors
    for factor in rest:
        axes = merged_axes(scope.order, [product.type.axes, factor.type.axes])
        product = Apply("mul", (product, factor), replace(product.type, axes=axes))
    return product


def contract(
    product: Product, over: tuple[str, ...], kept: tuple[str, ...], scope: Scope
) -> Tile | None:
    """Return the sum of a product over `over` as a matrix product; None where that could differ.

    What is not visible becomes 0 in every factor that has the condition's axes. That is only right
    while the other factor is finite there, and the order of additions is only irrelevant while
    everything is.
    """
    left, right = evaluate(product.left, scope), evaluate(product.right, scope)
    for condition in product.conditions:
        test = evaluate(condition, scope)
        sides = [set(test.axes) <= set(tile.axes) for tile in (left, right)]
        if not any(sides):
            return None
        left = _with_presence(left, test) if sides[0] else left
        right = _with_presence(right, test) if sides[1] else right
    left, right = _zeroed(left), _zeroed(right)
    if not set(over) <= set(left.axes) & set(right.axes):
        return None
    if not all(np.isfinite(tile.data).all() for tile in (left, right)):
        return None
    return _matmul(left, right, over, kept, scope)


def _with_presence(tile: Tile, test: Tile) -> Tile:
    wide = aligned(test, tile.axes)
    shown = wide.data & wide.visible
    return replace(tile, present=shown if tile.present is None else tile.present & shown)


def _zeroed(tile: Tile) -> Tile:
    if tile.present is None:
        return tile
    return Tile(tile.axes, np.where(tile.present, tile.data, tile.data.dtype.type(0)))


def _multiply(left: Array, right: Array) -> Array:
    if left.dtype.kind in "iu" and left.size and right.size:
        # Integers whose sums stay below 2^53 are exact in float64, which BLAS multiplies.
        bound = _magnitude(left) * _magnitude(right) * left.shape[-1]
        if bound < 2**53:
            exact = np.matmul(left.astype(np.float64), right.astype(np.float64))
            return np.asarray(exact.astype(left.dtype))
    return np.asarray(np.matmul(left, right))


def _magnitude(values: Array) -> int:
    return max(abs(int(values.min())), abs(int(values.max())))


def _matmul(
    left: Tile, right: Tile, over: tuple[str, ...], kept: tuple[str, ...], scope: Scope
) -> Tile:
    a, b = set(left.axes), set(right.axes)
    batch = tuple(axis for axis in kept if axis in a and axis in b)
    rows = tuple(axis for axis in kept if axis in a and axis not in b)
    columns = tuple(axis for axis in kept if axis not in a)
    lengths = {axis: scope.length(axis) for axis in (*kept, *over)}
    sides = (
        (left, (*batch, *rows, *over), (rows, over)),
        (right, (*batch, *over, *columns), (over, columns)),
    )
    shape = [lengths[axis] for axis in batch]
    matrices = [
        expanded(tile, axes, lengths).data.reshape(
            *shape, *(math.prod(lengths[axis] for axis in group) for group in groups)
        )
        for tile, axes, groups in sides
    ]
    product = _multiply(*matrices)
    axes = (*batch, *rows, *columns)
    order = merged_axes(scope.order, [axes])
    return Tile(order, spread(product.reshape([lengths[axis] for axis in axes]), axes, order))
