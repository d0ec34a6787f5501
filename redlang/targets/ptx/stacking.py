"""Tiles made of others: several side by side, or one value many times."""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.ptx.inline import Values, Word, define, pack, tile_type, unpack


def stacked(code: str, count: int, k: int) -> Word:
    """Return a function that puts k tiles of `count` elements into one, their number fastest."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        columns = [unpack(builder, value, count) for value in values]
        return pack(builder, [column[row] for row in range(count) for column in columns])

    return define("stacked", tile_type(code, count * k), [tile_type(code, count)] * k, generate)


def filled(code: str, count: int) -> Word:
    """Return a function from a scalar to a tile of `count` copies."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return pack(builder, [values[0]] * count)

    return define(f"filled_{code}", tile_type(code, count), (code,), generate)
