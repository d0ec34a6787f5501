"""What generated CUDA text may call: tiles in registers, and the instructions on them.

A *tile* is a tuple of registers of one compute type that a thread holds; a tile of one element is
the scalar. Generated text imports this module as `t`, declares what it uses at its top
(`load = t.load(...)`, `weight = t.function("f32", "f32", "f32")(...)`) and calls it in kernels.
Everything is typed: no expression becomes f64 by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from llvmlite import ir

from redlang.targets.numba_cuda import types
from redlang.targets.ptx.access import Access, Along, Guard
from redlang.targets.ptx.barriers import (
    barrier,
    fence,
    named_barrier,
    ticket,
    warp_barrier,
    wrapping_ticket,
)
from redlang.targets.ptx.calls import Body, body_of, call, function, results_of
from redlang.targets.ptx.convert import rounding
from redlang.targets.ptx.elementary import exp, exp2, fma, maximum, minimum, rsqrt
from redlang.targets.ptx.inline import (
    LLVM_TYPES,
    NUMBA_TYPES,
    Context,
    Intrinsic,
    NumbaType,
    Values,
    define,
    pack,
    tile_type,
    unpack,
)
from redlang.targets.ptx.memory import load, store
from redlang.targets.ptx.shared import shared_base, shared_load, shared_store
from redlang.targets.ptx.shuffle import (
    ballot,
    bits,
    broadcast,
    butterfly,
    warp_max,
    warp_min,
    warp_sum,
)

Counts = Mapping[str, int]
"""Registers of a tile along each axis, in the tile's order of axes."""


def elementwise(function: Intrinsic, counts: Counts, *axes: str) -> Intrinsic:
    """Return a function that applies a generated scalar function to every element of tiles.

    Args:
        function: What `function(...)` made.
        counts: Registers along each axis of the result.
        *axes: For each argument its axes, separated by blanks; no axes mean a scalar.

    Returns:
        A function of tiles that returns a tile, or a tuple of tiles if `function` has several
        results.
    """
    body = body_of(function)
    assert len(axes) == len(body.arguments), (axes, body.arguments)
    held = [tuple(text.split()) for text in axes]
    total = _product(counts.values())
    result = _tiles_type(body, total)
    kinds = [
        tile_type(code, _product(counts[axis] for axis in own))
        for code, own in zip(body.arguments, held, strict=True)
    ]

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        arguments = [
            unpack(builder, value, _product(counts[axis] for axis in own))
            for value, own in zip(values, held, strict=True)
        ]
        columns: list[list[ir.Value]] = [[] for _ in body.results]
        for position in itertools.product(*map(range, counts.values())):
            at = dict(zip(counts, position, strict=True))
            chosen = [
                elements[_place(own, counts, at)]
                for elements, own in zip(arguments, held, strict=True)
            ]
            found = results_of(builder, body, call(context, builder, body, chosen))
            for column, value in zip(columns, found, strict=True):
                column.append(value)
        return _packed(context, builder, result, columns)

    return define(body.python.__name__, result, kinds, generate)


def fold(function: Intrinsic, counts: Counts, over: str) -> Intrinsic:
    """Return a function that combines the elements of tiles along the axes `over`.

    `function` combines two states: it takes the values of the left one, then those of the right
    one. Elements are combined as a balanced tree; the left state always holds earlier elements.

    Args:
        function: What `function(...)` made.
        counts: Registers along each axis of the tiles.
        over: The axes to fold, separated by blanks.

    Returns:
        A function of one tile for each value of the state, which returns the folded tiles.
    """
    body = body_of(function)
    width = len(body.results)
    kept = {axis: count for axis, count in counts.items() if axis not in over.split()}
    folded = {axis: count for axis, count in counts.items() if axis in over.split()}
    result = _tiles_type(body, _product(kept.values()))
    kinds = [tile_type(code, _product(counts.values())) for code in body.results]

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        tiles = [unpack(builder, value, _product(counts.values())) for value in values]
        columns: list[list[ir.Value]] = [[] for _ in range(width)]
        for position in itertools.product(*map(range, kept.values())):
            at = dict(zip(kept, position, strict=True))
            states = [
                [tile[_place(tuple(counts), counts, at | inner)] for tile in tiles]
                for inner in _positions(folded)
            ]
            for column, value in zip(columns, _tree(context, builder, body, states), strict=True):
                column.append(value)
        return _packed(context, builder, result, columns)

    return define(body.python.__name__, result, kinds, generate)


def _tree(
    context: Context, builder: ir.IRBuilder, body: Body, states: Sequence[list[ir.Value]]
) -> list[ir.Value]:
    """Combine neighbouring states until one is left."""
    level = list(states)
    while len(level) > 1:
        pairs = [
            results_of(builder, body, call(context, builder, body, [*left, *right]))
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def indices(
    code: str, counts: Counts, reaches: Mapping[str, Sequence[int]], axis: str
) -> Intrinsic:
    """Return a function from a thread's first index along `axis` to the tile of its indices.

    Args:
        code: `i32` or `i64`.
        counts: Registers along each axis of the tile.
        reaches: For each axis, what each of its registers adds to the first index.
        axis: The axis whose index is meant.
    """

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        kind = LLVM_TYPES[code]
        elements = [
            builder.add(values[0], ir.Constant(kind, reaches[axis][number]))
            for number in range(counts[axis])
        ]
        return pack(builder, elements)

    return define("indices", tile_type(code, counts[axis]), (code,), generate)


def filled(code: str, count: int) -> Intrinsic:
    """Return a function from a scalar to a tile of `count` copies."""

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        return pack(builder, [values[0]] * count)

    return define(f"filled_{code}", tile_type(code, count), (code,), generate)


def _product(numbers: Iterable[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def _positions(counts: Counts) -> list[dict[str, int]]:
    ranges = map(range, counts.values())
    return [dict(zip(counts, position, strict=True)) for position in itertools.product(*ranges)]


def _place(own: Sequence[str], counts: Counts, at: Mapping[str, int]) -> int:
    """Return where a tile over the axes `own` holds the element at these positions."""
    place = 0
    for axis in own:
        place = place * counts[axis] + at[axis]
    return place


def _tiles_type(body: Body, count: int) -> NumbaType:
    tiles = [tile_type(code, count) for code in body.results]
    return tiles[0] if len(tiles) == 1 else types.Tuple(tiles)


def _packed(
    context: Context,
    builder: ir.IRBuilder,
    result: NumbaType,
    columns: Sequence[Sequence[ir.Value]],
) -> ir.Value:
    tiles = [pack(builder, column) for column in columns]
    return tiles[0] if len(tiles) == 1 else context.make_tuple(builder, result, tiles)


__all__ = [
    "NUMBA_TYPES",
    "Access",
    "Along",
    "Guard",
    "ballot",
    "barrier",
    "bits",
    "broadcast",
    "butterfly",
    "elementwise",
    "exp",
    "exp2",
    "fence",
    "filled",
    "fma",
    "fold",
    "function",
    "indices",
    "load",
    "maximum",
    "minimum",
    "named_barrier",
    "rounding",
    "rsqrt",
    "shared_base",
    "shared_load",
    "shared_store",
    "store",
    "ticket",
    "warp_barrier",
    "warp_max",
    "warp_min",
    "warp_sum",
    "wrapping_ticket",
]
