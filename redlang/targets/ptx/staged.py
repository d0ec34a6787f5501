"""Tiles that are on their way: pieces copied ahead into shared memory by `cp.async`.

A thread copies the pieces of its own tiles and reads no others, so that no thread ever waits for
another one. Pieces of one number lie side by side for all threads of a block: neighbouring lanes
use neighbouring banks. `pieces_commit` ends what belongs to one tile, `pieces_arrived` waits.

Source: PTX ISA, "cp.async": bytes beyond the source size become zeros and are not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.targets.kinds import I32, I64, VOID
from redlang.targets.ptx.access import Access, Piece, pieces
from redlang.targets.ptx.convert import COMPUTE_CODES, STORAGE_BITS, decode
from redlang.targets.ptx.inline import Values, Word, asm, define, pack, tile_type
from redlang.targets.ptx.memory import access_arguments, access_kinds, word_type
from redlang.targets.ptx.shared import base, load_words


def fetch(access: Access, stride: int, *, past_l1: bool = False) -> Word:
    """Return a function that starts the copies of a tile.

    Its arguments: the offset of the thread's first piece in shared memory (i64), then those of
    `load`. Elements that are not there become zeros.

    Args:
        access: How the thread's tile lies in global memory; pieces have 4, 8 or 16 bytes.
        stride: Bytes between the pieces of a thread in shared memory.
        past_l1: Whether neighbouring lanes copy neighbouring pieces, so that L1 need not keep what
            they leave of a line; what else is read then stays there. On an H200 it is 3 % faster,
            and twice as slow where pieces lie apart.
    """
    size = STORAGE_BITS[access.dtype] // 8
    whole = access.width * size
    assert whole >= 4, access
    level = "cg" if past_l1 and whole == 16 else "ca"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        target = builder.add(base(builder), builder.trunc(values[0], I32))
        for number, piece in enumerate(pieces(access)):
            address, bounds = access_arguments(builder, access, piece, values[1:])
            text = (
                f"cp.async.{level}.shared.global [$0+{number * stride}], "
                f"[$1+{piece.offset}], {whole}, $2;"
            )
            there = _bytes_there(builder, access, piece, bounds, size)
            asm(builder, VOID, text, "r,l,r,~{memory}", [target, address, there], effect=True)

    return define(f"fetch_{access.dtype}", "void", ["i64", *access_kinds(access)], generate)


def _bytes_there(
    builder: ir.IRBuilder, access: Access, piece: Piece, bounds: Sequence[ir.Value], size: int
) -> ir.Value:
    """Return how many bytes of a piece exist (i32)."""
    there: ir.Value = ir.Constant(I32, access.width * size)
    none = ir.Constant(I32, 0)
    for guard, left in zip(access.guards, bounds, strict=True):
        assert not guard.head, guard
        rest = builder.sub(left, ir.Constant(I32, piece.reaches[guard.axis]))
        if guard.ragged and guard.axis == access.axis:
            part = builder.mul(rest, ir.Constant(I32, size))
            there = builder.select(builder.icmp_signed("<", part, there), part, there)
        there = builder.select(builder.icmp_signed(">", rest, none), there, none)
    return there


def staged(access: Access, stride: int, *, native_f8: bool = True) -> Word:
    """Return a function from the offset that `fetch` was given (i64) to the tile, arrived."""
    word, words = word_type(access)
    code = COMPUTE_CODES[access.dtype]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address = builder.add(base(builder), builder.trunc(values[0], I32))
        elements: list[ir.Value | None] = [None] * access.count
        for number, piece in enumerate(pieces(access)):
            raw = load_words(builder, address, number * stride, word, words)
            found = [x for w in raw for x in decode(builder, access.dtype, w, native_f8)]
            for place, element in zip(piece.places, found, strict=True):
                elements[place] = element
        return pack(builder, [element for element in elements if element is not None])

    assert word in (I32, I64), access
    return define(f"staged_{access.dtype}", tile_type(code, access.count), ("i64",), generate)
