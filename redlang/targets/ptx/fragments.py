"""Fragments into shared memory: a warp's rows, rounded to 16 bits, as tensor copies read them."""

from __future__ import annotations

from llvmlite import ir

from redlang.schedule.fragments import Place, SharedTile
from redlang.targets.ptx.inline import (
    I32,
    Context,
    Intrinsic,
    NumbaType,
    Values,
    asm,
    define,
    tile_type,
    unpack,
)
from redlang.targets.ptx.shared import store_at

_PIECE = 16
_HALF_ROWS = 8


def stage(dtype: str, columns: int, tile: SharedTile, *, rows_first: bool = True) -> Intrinsic:
    """Return `stage(address, fragment)`: write a warp's 16 rows to its part of shared memory."""
    kind = "bf16x2" if dtype == "bf16" else "f16x2"
    pieces_mask = tile.span // _PIECE - 1
    per_block = tile.width // 8

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        def number(value: int) -> ir.Constant:
            return ir.Constant(I32, value)

        address, fragment = values
        elements = unpack(builder, fragment, columns // 2)
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        line = builder.lshr(lane, number(2))
        start = builder.mul(line, number(tile.span))
        own = builder.add(builder.mul(builder.and_(lane, number(3)), number(4)), start)
        own = builder.add(address, own)
        turn = builder.and_(builder.lshr(start, number(7)), number(pieces_mask))
        for block in range(columns // 8):
            outer, inner = divmod(block, per_block)
            piece = builder.mul(builder.xor(turn, number(inner)), number(_PIECE))
            place = builder.add(own, piece)
            for half in (0, 1):
                low, high = (
                    elements[Place(half, block, x).index(columns, rows_first=rows_first)]
                    for x in (0, 1)
                )
                word = asm(builder, I32, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", [high, low])
                offset = outer * tile.block_bytes + half * _HALF_ROWS * tile.span
                store_at(builder, place, offset, [word])
        return context.get_dummy_value()

    return define("stage", "void", ["u32", tile_type("f32", columns // 2)], generate)
