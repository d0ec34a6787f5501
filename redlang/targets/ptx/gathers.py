"""Loads of elements at computed places, and the places that lie near a thread's elements."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.targets.kinds import LLVM_TYPES
from redlang.targets.ptx.access import Access
from redlang.targets.ptx.convert import COMPUTE_CODES, STORAGE_BITS
from redlang.targets.ptx.inline import (
    Values,
    Word,
    define,
    pack,
    tile_type,
    unless_passed,
    unpack,
    unseen,
)
from redlang.targets.ptx.memory import load


def near(reaches: Sequence[int], distance: int, width: int = 1) -> Word:
    """Return a function that says where along an axis neighbours of a thread's elements lie.

    Its arguments are the number of elements from the thread's first one on and, if `distance` is
    negative, what has to be added to its index for the axis's first one (i32). It returns what has
    to be added to the thread's first index (i64). What lies beyond an end of the axis is held
    there.

    Args:
        reaches: What each register adds to the thread's first index.
        distance: How much further on the neighbours lie.
        width: How many elements are read at once, all of them inside of the axis.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        left, *back = values
        kind = left.type
        last = builder.sub(left, ir.Constant(kind, width))
        found = []
        for reach in reaches:
            number = reach % width
            place: ir.Value = ir.Constant(kind, reach - number + distance)
            for first in back:
                place = builder.select(builder.icmp_signed(">", place, first), place, first)
            place = builder.select(builder.icmp_signed("<", place, last), place, last)
            place = builder.add(place, ir.Constant(kind, number))
            found.append(builder.sext(place, LLVM_TYPES["i64"]))
        return pack(builder, found)

    kinds = ("i32", "i32") if distance < 0 else ("i32",)
    return define("near", tile_type("i64", len(reaches)), kinds, generate)


def gather(
    dtype: str,
    count: int,
    *,
    width: int = 1,
    place: int = 1,
    guarded: bool = False,
    native_f8: bool = True,
) -> Word:
    """Return a function that loads `count` elements: (address of the first, tile of offsets).

    Args:
        dtype: Storage type of the elements.
        count: How many a thread loads.
        width: How many elements of the tile, `place` apart, are neighbours in memory.
        place: Elements of the tile between two such.
        guarded: Whether there is a third argument, the number of elements that exist (i32): where
            there is none, nothing is read, and zeros are returned.
        native_f8: Whether the device converts f8 by an instruction.
    """
    size = ir.Constant(LLVM_TYPES["i64"], STORAGE_BITS[dtype] // 8)
    piece = load(Access(dtype, width), hint="keep", native_f8=native_f8)

    def read(builder: ir.IRBuilder, base: ir.Value, offsets: Values) -> list[ir.Value]:
        found: dict[int, ir.Value] = {}
        for first in (i for i in range(count) if i // place % width == 0):
            at = builder.add(base, builder.mul(offsets[first], size))
            elements = unpack(builder, piece.emit(builder, at), width)
            found |= {first + number * place: e for number, e in enumerate(elements)}
        return [found[i] for i in range(count)]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        base, tile, *some = values
        offsets = unpack(builder, tile, count)
        if not guarded:
            return pack(builder, read(builder, base, offsets))
        # No load has a predicate of its own: `ptxas` has all of them under way together.
        nothing = unseen(builder, LLVM_TYPES[COMPUTE_CODES[dtype]])
        there = builder.icmp_signed(">", some[0], ir.Constant(some[0].type, 0))
        return pack(
            builder, unless_passed(builder, there, lambda: read(builder, base, offsets), nothing)
        )

    kinds = ["i64", tile_type("i64", count), *(["i32"] if guarded else [])]
    return define("gather", tile_type(COMPUTE_CODES[dtype], count), kinds, generate)
