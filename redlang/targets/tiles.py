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

from redlang.targets.kinds import (
    BOOL,
    INT32,
    LLVM_TYPES,
    SCALARS,
    Kind,
    Signature,
    count_of,
    tuple_of,
)
from redlang.targets.ptx.access import Access, Along, Guard
from redlang.targets.ptx.across import (
    blocks,
    lanes,
    packed_states,
    run,
    state_kinds,
    states_type,
    tree,
    unpacked_states,
    warps,
)
from redlang.targets.ptx.barriers import (
    arrival,
    barrier,
    cluster_arrive,
    cluster_wait,
    let_later_begin,
    named_barrier,
    wait_for_earlier,
)
from redlang.targets.ptx.calls import body_of, call, function, results_of
from redlang.targets.ptx.columns import columns
from redlang.targets.ptx.convert import rounding
from redlang.targets.ptx.cp_async import pieces_arrived, pieces_commit
from redlang.targets.ptx.elementary import exp, exp2, fma, maximum, minimum, rsqrt
from redlang.targets.ptx.gathers import gather, near
from redlang.targets.ptx.inline import (
    Typed,
    Values,
    Word,
    define,
    define_generic,
    pack,
    tile_type,
    unpack,
)
from redlang.targets.ptx.memory import computed, load, load_stored, prefetch, store
from redlang.targets.ptx.posts import post, taken
from redlang.targets.ptx.ranks import (
    joined_key,
    lower_half,
    lower_key,
    packed_key_bf16,
    packed_key_f16,
    rank_f32,
    same_f32,
    unrank_bf16,
    unrank_f16,
    unrank_f32,
    upper_half,
    upper_key,
)
from redlang.targets.ptx.shared import shared_load, shared_store
from redlang.targets.ptx.shuffle import (
    ballot,
    broadcast,
    butterfly,
    exchanged,
    warp_max,
    warp_min,
    warp_sum,
)
from redlang.targets.ptx.stacking import filled, stacked
from redlang.targets.ptx.staged import fetch, staged

RUN = 4
"""Elements of a thread that are combined one after another."""

Counts = Mapping[str, int]
"""Registers of a tile along each axis, in the tile's order of axes."""


def elementwise(function: Word, counts: Counts, *axes: str) -> Word:
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
    result = states_type(body, total)
    kinds = [
        tile_type(code, _product(counts[axis] for axis in own))
        for code, own in zip(body.arguments, held, strict=True)
    ]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        arguments = [
            unpack(builder, value, _product(counts[axis] for axis in own))
            for value, own in zip(values, held, strict=True)
        ]
        states = []
        for at in _positions(counts):
            chosen = [
                elements[_place(own, counts, at)]
                for elements, own in zip(arguments, held, strict=True)
            ]
            states.append(results_of(builder, body, call(builder, body, chosen)))
        return packed_states(builder, body, states)

    return define(body.python.__name__, result, kinds, generate)


def fold(function: Word, counts: Counts, over: str) -> Word:
    """Return a function that combines the elements of tiles along the axes `over`.

    `function` combines two states: it takes the values of the left one, then those of the right
    one. Runs of `RUN` elements are combined one after another, so that a sum of products takes one
    instruction for each, and runs as a balanced tree; the left state always holds earlier elements.

    Args:
        function: What `function(...)` made.
        counts: Registers along each axis of the tiles.
        over: The axes to fold, separated by blanks.

    Returns:
        A function of one tile for each value of the state, which returns the folded tiles.
    """
    body = body_of(function)
    kept = {axis: count for axis, count in counts.items() if axis not in over.split()}
    folded = {axis: count for axis, count in counts.items() if axis in over.split()}
    total = _product(counts.values())

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        states = unpacked_states(builder, values, total)
        found = []
        for at in _positions(kept):
            places = [_place(tuple(counts), counts, at | inner) for inner in _positions(folded)]
            own = [states[place] for place in places]
            runs = [run(builder, body, own[i : i + RUN]) for i in range(0, len(own), RUN)]
            found.append(tree(builder, body, runs))
        return packed_states(builder, body, found)

    result = states_type(body, _product(kept.values()))
    return define(body.python.__name__, result, state_kinds(body, total), generate)


def inside(reaches: Sequence[int]) -> Word:
    """Return a function that says which registers along an axis hold elements of the axis.

    Args:
        reaches: What each register adds to the thread's first index.

    Returns:
        A function of the number of elements from the thread's first one on (i32).
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        left = values[0]
        tests = [builder.icmp_signed(">", left, ir.Constant(left.type, reach)) for reach in reaches]
        return pack(builder, tests)

    return define("inside", tile_type("bool", len(reaches)), ("i32",), generate)


def indices(code: str, reaches: Sequence[int]) -> Word:
    """Return a function from a thread's first index along an axis to the tile of its indices.

    Args:
        code: `i32` or `i64`.
        reaches: What each register adds to the first index.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        kind = LLVM_TYPES[code]
        return pack(
            builder, [builder.add(values[0], ir.Constant(kind, reach)) for reach in reaches]
        )

    return define("indices", tile_type(code, len(reaches)), (code,), generate)


def constants(numbers: Sequence[int]) -> Word:
    """Return a function without arguments that gives a tile of f32 numbers."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        kind = LLVM_TYPES["f32"]
        return pack(builder, [ir.Constant(kind, float(number)) for number in numbers])

    return define("constants", tile_type("f32", len(numbers)), (), generate)


_I64_2 = ("i64", "i64")


def _smaller(builder: ir.IRBuilder, values: Values) -> Values:
    return builder.select(builder.icmp_signed("<", *values), *values)


smaller = define("smaller", "i64", _I64_2, _smaller)
"""The smaller of two integers."""


def _clamped(builder: ir.IRBuilder, values: Values) -> Values:
    (value,) = values
    for bound, sign in ((1 << 30, "<"), (-(1 << 30), ">")):
        limit = ir.Constant(value.type, bound)
        value = builder.select(builder.icmp_signed(sign, value, limit), value, limit)
    return builder.trunc(value, LLVM_TYPES["i32"])


clamped = define("clamped", "i32", ("i64",), _clamped)
"""A number of elements as an i32; what is beyond 2^30 becomes that."""


def _tiles(builder: ir.IRBuilder, values: Values) -> Values:
    extent, tile = values
    one = ir.Constant(extent.type, 1)
    return builder.udiv(builder.add(extent, builder.sub(tile, one)), tile)


tiles = define("tiles", "i64", _I64_2, _tiles)
"""`tiles(extent, tile)`: how many tiles cover an extent; cheap for powers of two."""


def _divided(builder: ir.IRBuilder, values: Values) -> Values:
    number, divisor = values
    narrow = builder.trunc(divisor, LLVM_TYPES["u32"])
    quotient = builder.udiv(number, narrow)
    rest = builder.sub(number, builder.mul(quotient, narrow))
    return pack(builder, [quotient, rest])


divided = define("divided", tuple_of([INT32] * (2)), ("i32", "i64"), _divided)
"""`divided(number, divisor)`: quotient and remainder of non-negative numbers, in 32 bits."""


def _choose(test: Kind, yes: Kind, no: Kind) -> Typed:
    count = count_of(yes)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        pairs = zip(
            unpack(builder, values[1], count), unpack(builder, values[2], count), strict=True
        )
        return pack(builder, [builder.select(values[0], a, b) for a, b in pairs])

    return Signature(yes, (BOOL, yes, yes)), generate


choose = define_generic("choose", 3, _choose)
"""`choose(test, tile, tile)`: one of two tiles, by one test."""


def split(code: str, counts: Counts, over: str, k: int) -> Word:
    """Return a function that deals the elements along `over` out to k tiles: (tile, neutral).

    Element i goes to tile i % k at place i // k; what is missing at the end is `neutral`.

    Args:
        code: The type code of the tile.
        counts: Registers along each axis.
        over: The axes that are dealt out, separated by blanks.
        k: How many tiles.
    """
    kept = {axis: count for axis, count in counts.items() if axis not in over.split()}
    folded = {axis: count for axis, count in counts.items() if axis in over.split()}
    chunks = -(-_product(folded.values()) // k)
    total = _product(kept.values()) * chunks

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements = unpack(builder, values[0], _product(counts.values()))
        hands: list[list[ir.Value]] = [[] for _ in range(k)]
        for at in _positions(kept):
            row = [
                elements[_place(tuple(counts), counts, at | inner)] for inner in _positions(folded)
            ]
            row += [values[1]] * (chunks * k - len(row))
            for chunk in range(chunks):
                for hand in range(k):
                    hands[hand].append(row[chunk * k + hand])
        tiles = [pack(builder, hand) for hand in hands]
        return tiles[0] if k == 1 else pack(builder, tiles)

    kind = tile_type(code, total)
    result = kind if k == 1 else tuple_of([kind] * (k))
    return define("split", result, [tile_type(code, _product(counts.values())), code], generate)


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


__all__ = [
    "SCALARS",
    "Access",
    "Along",
    "Guard",
    "arrival",
    "ballot",
    "barrier",
    "blocks",
    "broadcast",
    "butterfly",
    "choose",
    "clamped",
    "cluster_arrive",
    "cluster_wait",
    "columns",
    "computed",
    "constants",
    "divided",
    "elementwise",
    "exchanged",
    "exp",
    "exp2",
    "fetch",
    "filled",
    "fma",
    "fold",
    "function",
    "gather",
    "indices",
    "inside",
    "joined_key",
    "lanes",
    "let_later_begin",
    "load",
    "load_stored",
    "lower_half",
    "lower_key",
    "maximum",
    "minimum",
    "named_barrier",
    "near",
    "packed_key_bf16",
    "packed_key_f16",
    "pieces_arrived",
    "pieces_commit",
    "post",
    "prefetch",
    "rank_f32",
    "rounding",
    "rsqrt",
    "same_f32",
    "shared_load",
    "shared_store",
    "smaller",
    "split",
    "stacked",
    "staged",
    "store",
    "taken",
    "tiles",
    "unrank_bf16",
    "unrank_f16",
    "unrank_f32",
    "upper_half",
    "upper_key",
    "wait_for_earlier",
    "warp_max",
    "warp_min",
    "warp_sum",
    "warps",
]
