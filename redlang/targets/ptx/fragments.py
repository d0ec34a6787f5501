"""Fragments into shared memory and back: a warp's rows of 16-bit elements, as tensor copies do."""

from __future__ import annotations

from llvmlite import ir

from redlang.schedule.fragments import Place, SharedTile
from redlang.targets.kinds import F32, I16, I32
from redlang.targets.ptx.convert import decode
from redlang.targets.ptx.inline import Values, Word, asm, define, i32, pack, tile_type, unpack
from redlang.targets.ptx.shared import load_at, store_at

_PIECE = 16
_PIECE_ELEMENTS = 8
_WARP_ROWS = 16
_HALF_ROWS = 8


def stage(dtype: str, columns: int, tile: SharedTile, *, rows_first: bool = True) -> Word:
    """Return `stage(address, fragment)`: write a warp's 16 rows to its part of shared memory."""
    kind = "bf16x2" if dtype == "bf16" else "f16x2"
    pieces_mask = tile.span // _PIECE - 1
    per_block = tile.width // 8

    def generate(builder: ir.IRBuilder, values: Values) -> Values:

        address, fragment = values
        elements = unpack(builder, fragment, columns // 2)
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        line = builder.lshr(lane, i32(2))
        start = builder.mul(line, i32(tile.span))
        own = builder.add(builder.mul(builder.and_(lane, i32(3)), i32(4)), start)
        own = builder.add(address, own)
        turn = builder.and_(builder.lshr(start, i32(7)), i32(pieces_mask))
        for block in range(columns // 8):
            outer, inner = divmod(block, per_block)
            piece = builder.mul(builder.xor(turn, i32(inner)), i32(_PIECE))
            place = builder.add(own, piece)
            for half in (0, 1):
                low, high = (
                    elements[Place(half, block, x).index(columns, rows_first=rows_first)]
                    for x in (0, 1)
                )
                word = asm(builder, I32, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", [high, low])
                offset = outer * tile.block_bytes + half * _HALF_ROWS * tile.span
                store_at(builder, place, offset, [word])

    return define("stage", "void", ["u32", tile_type("f32", columns // 2)], generate)


def fetch(dtype: str, columns: int, tile: SharedTile, *, rows_first: bool = True) -> Word:
    """Return `fetch(address)`: a fragment of the rows that a warp group has from `address` on.

    A lane names a line of each of four blocks of eight by eight elements; the blocks come turned
    where rows are adjacent in memory. Elements of 8 bits are read in pairs.
    """
    if tile.size == 1:
        return _fetch_bytes(dtype, columns, tile, rows_first=rows_first)
    mask = tile.span // _PIECE - 1
    turned = "" if tile.contracted else ".trans"
    text = f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
    words = ir.LiteralStructType([I32] * 4)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:

        def bits(value: ir.Value, place: int, count: int) -> ir.Value:
            shifted = builder.lshr(value, i32(place))
            return builder.and_(shifted, i32((1 << count) - 1))

        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        thread = asm(builder, I32, "mov.u32 $0, %tid.x;", "=r", [])
        warp = bits(thread, 5, 2)
        within, half, step = bits(lane, 0, 3), bits(lane, 3, 1), bits(lane, 4, 1)
        own_row = builder.add(builder.mul(warp, i32(_WARP_ROWS)), builder.shl(half, i32(3)))
        if tile.contracted:
            line, piece = builder.add(own_row, within), step
        else:
            line = builder.add(builder.shl(step, i32(3)), within)
            piece = builder.lshr(own_row, i32(3))
        start = builder.mul(line, i32(tile.span))
        turn = builder.and_(builder.lshr(start, i32(7)), i32(mask))
        first = builder.add(values[0], start)
        elements: list[ir.Value | None] = [None] * (columns // 2)
        for pair in range(columns // 16):
            if tile.contracted:
                outer, inner = divmod(pair * 2 * _PIECE_ELEMENTS, tile.width)
                own = builder.add(piece, i32(inner // _PIECE_ELEMENTS))
                offset = outer * tile.block_bytes
            else:
                own, offset = piece, pair * 16 * tile.span
            swizzled = builder.mul(builder.xor(own, turn), i32(_PIECE))
            address = builder.add(builder.add(first, swizzled), i32(offset))
            raw = asm(builder, words, text, "=r,=r,=r,=r,r,~{memory}", [address], effect=True)
            for place in range(4):
                word = builder.extract_value(raw, place)
                for at, element in enumerate(_halves(builder, word, dtype)):
                    found = Place(place & 1, 2 * pair + (place >> 1), at)
                    elements[found.index(columns, rows_first=rows_first)] = element
        return pack(builder, [element for element in elements if element is not None])

    return define("fetch", tile_type("f32", columns // 2), ["u32"], generate)


def _fetch_bytes(dtype: str, columns: int, tile: SharedTile, *, rows_first: bool) -> Word:
    """Return `fetch` for elements of 8 bits, which lie along rows."""
    assert tile.contracted, tile
    mask = tile.span // _PIECE - 1
    per_piece = _PIECE // _PIECE_ELEMENTS

    def generate(builder: ir.IRBuilder, values: Values) -> Values:

        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        thread = asm(builder, I32, "mov.u32 $0, %tid.x;", "=r", [])
        warp = builder.and_(builder.lshr(thread, i32(5)), i32(3))
        row = builder.add(builder.mul(warp, i32(_WARP_ROWS)), builder.lshr(lane, i32(2)))
        start = builder.mul(row, i32(tile.span))
        turn = builder.and_(builder.lshr(start, i32(7)), i32(mask))
        pair = builder.mul(builder.and_(lane, i32(3)), i32(2))
        first = builder.add(values[0], builder.add(start, pair))
        elements: list[ir.Value | None] = [None] * (columns // 2)
        for block in range(columns // _PIECE_ELEMENTS):
            outer, inner = divmod(block * _PIECE_ELEMENTS, tile.width)
            piece = builder.mul(builder.xor(turn, i32(inner // _PIECE)), i32(_PIECE))
            own = builder.add(first, piece)
            place = outer * tile.block_bytes + block % per_piece * _PIECE_ELEMENTS
            for half in (0, 1):
                offset = place + half * _HALF_ROWS * tile.span
                text = f"ld.shared.b16 $0, [$1+{offset}];"
                bits = asm(builder, I16, text, "=h,r,~{memory}", [own], effect=True)
                for at, element in enumerate(decode(builder, dtype, bits, native_f8=True)):
                    found = Place(half, block, at).index(columns, rows_first=rows_first)
                    elements[found] = _as_float(builder, element)
        return pack(builder, [element for element in elements if element is not None])

    return define("fetch", tile_type("f32", columns // 2), ["u32"], generate)


def _as_float(builder: ir.IRBuilder, element: ir.Value) -> ir.Value:
    """Return a small integer, or a float, as f32."""
    if element.type == F32:
        return element
    return builder.sitofp(builder.trunc(element, I32), F32)


def fetch_line(dtype: str, columns: int) -> Word:
    """Return `fetch(address)`: the elements of a line that a thread's columns have, as f32."""
    size = 4 if dtype == "f32" else 2

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        quad = builder.and_(lane, ir.Constant(I32, 3))
        own = builder.add(values[0], builder.mul(quad, ir.Constant(I32, 2 * size)))
        elements = []
        for block in range(columns // _PIECE_ELEMENTS):
            offset = block * _PIECE_ELEMENTS * size
            if dtype == "f32":
                elements += load_at(builder, own, offset, "f32", 2)
            else:
                (word,) = load_at(builder, own, offset, "i32", 1)
                elements += _halves(builder, word, dtype)
        return pack(builder, elements)

    return define("fetch_line", tile_type("f32", columns // 4), ["u32"], generate)


def _halves(builder: ir.IRBuilder, word: ir.Value, dtype: str) -> list[ir.Value]:
    """Return the two numbers in a word as f32."""
    if dtype == "bf16":
        low = builder.shl(word, ir.Constant(I32, 16))
        high = builder.and_(word, ir.Constant(I32, 0xFFFF0000))
        return [builder.bitcast(half, F32) for half in (low, high)]
    text = "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.f32.f16 $0, low; "
    text += "cvt.f32.f16 $1, high; }"
    both = asm(builder, ir.LiteralStructType([F32, F32]), text, "=f,=f,r", [word])
    return [builder.extract_value(both, place) for place in (0, 1)]
