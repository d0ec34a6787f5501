"""Products of one warp by `mma`, with operands from shared memory: every GPU from 8.0 on.

A warp multiplies 16 or 32 of its block's rows. Operands lie in shared memory as `SharedTile` says,
swizzled so that `ldmatrix` meets no bank twice; a left operand may come in registers, packed from
the accumulators of another product, whose places are those of an operand. One product is one
statement: `ptxas` sees all its loads and instructions and orders them.

Operands of f32 are rounded to tf32 on their way. There a lane's two elements of the contracted axis
are four apart, and in accumulators neighbours; the terms of a sum have no order, so that the right
operand of a computed one is read as the accumulators lie.

Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16", "... for mma.m16n8k8" and "ldmatrix".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir

from redlang.schedule.fragments import Place, SharedTile, left_operands
from redlang.targets.kinds import F32, I32, INT32, Kind, tuple_of
from redlang.targets.ptx.inline import (
    Values,
    Word,
    asm,
    define,
    pack,
    tile_type,
    unpack,
)

_MEMORY = "~{memory}"
_PIECE = 16
_SHORT = 2


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """The product of `8 halves` rows of `left` times `columns` columns of `right`.

    Attributes:
        dtype: Type of both operands: `f16`, `bf16`, or `f32` for tf32.
        columns: A multiple of 16.
        contracted: Extent of the contracted axis, a multiple of 16.
        right: How the right operand lies in shared memory.
        left: How the left operand does, or None if it comes in registers.
        accumulate: Whether to add to the accumulators.
        rows_first: The order of fragments.
        halves: Rows that a thread holds: 2 or 4.
    """

    dtype: str
    columns: int
    contracted: int
    right: SharedTile
    left: SharedTile | None = None
    accumulate: bool = False
    rows_first: bool = True
    halves: int = 2

    @property
    def step(self) -> int:
        """Return the elements of the contracted axis that one instruction takes: 32 bytes."""
        return 2 * _PIECE // self.right.size

    @property
    def order(self) -> list[int]:
        """Return, for each accumulator, which element of a fragment it is."""
        return [
            Place(2 * rows + half, block, place).index(
                self.columns, rows_first=self.rows_first, halves=self.halves
            )
            for rows in range(self.halves // 2)
            for block in range(self.columns // 8)
            for half in (0, 1)
            for place in (0, 1)
        ]


def warp_product(shape: WarpProduct) -> Word:
    """Return a function that multiplies.

    Its arguments: the accumulators if `shape.accumulate`; the left operand, in shared memory (its
    address, and what the warp's rows are moved by within a line, in bytes) or in registers; the
    address of the right operand; the lane's number. It returns the accumulators.
    """
    count = shape.columns // 4 * shape.halves
    registers = _registers(shape)
    fragment = tile_type("f32", count)
    kinds: list[Kind | str] = [fragment] if shape.accumulate else []
    kinds += ["u32", "u32"] if shape.left is not None else [tile_type("i32", registers)]
    kinds += ["u32", "i32"]
    order = shape.order
    text = "{ " + " ".join(product_text(shape)) + " }"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        rest = list(values)
        if shape.accumulate:
            given = unpack(builder, rest.pop(0), count)
            held = [given[place] for place in order]
        else:
            held = [ir.Constant(F32, 0.0)] * count
        operands = rest if shape.left is not None else unpack(builder, rest.pop(0), registers)
        operands = [*operands, *rest] if shape.left is None else operands
        constraints = ["=f"] * count + [str(number) for number in range(count)]
        constraints += ["r"] * len(operands) + [_MEMORY]
        result = ir.LiteralStructType([F32] * count)
        arguments = [*held, *operands]
        raw = asm(builder, result, text, ",".join(constraints), arguments, effect=True)
        found: list[ir.Value | None] = [None] * count
        for number, place in enumerate(order):
            found[place] = builder.extract_value(raw, number)
        return pack(builder, [value for value in found if value is not None])

    return define("warp_product", fragment, kinds, generate)


def _registers(shape: WarpProduct) -> int:
    """Return the registers of a left operand that comes in them."""
    if shape.left is not None:
        return 0
    return shape.contracted // shape.step * 2 * shape.halves


def product_text(shape: WarpProduct) -> Iterator[str]:
    """Yield the PTX of a whole product."""
    count = shape.columns // 4 * shape.halves
    first = 2 * count
    registers = _registers(shape) or 2
    right, lane = f"${first + registers}", f"${first + registers + 1}"
    steps, pairs = shape.contracted // shape.step, shape.columns // 16
    tiles = shape.halves // 2
    yield ".reg .b32 r, m, one, two, t;"
    yield f"and.b32 r, {lane}, 7; shr.u32 m, {lane}, 3; and.b32 one, m, 1; shr.u32 two, m, 1;"
    long = shape.dtype == "f32"
    if long and not shape.right.contracted:
        yield from _element_places(shape.right, right, lane)
    else:
        lines, pieces = ("two", "one") if shape.right.contracted else ("one", "two")
        yield from _lane_places("b", shape.right, right, lines, pieces, None)
    if shape.left is not None:
        lines, pieces = ("one", "two") if shape.left.contracted else ("two", "one")
        yield from _lane_places("a", shape.left, f"${first}", lines, pieces, f"${first + 1}")
    yield f".reg .b32 x<{steps * tiles * 4}>, y<{steps * pairs * 4}>;"
    kind = "tf32" if long else shape.dtype
    name = f"mma.sync.aligned.m16n8k{shape.step}.row.col.f32.{kind}.{kind}.f32"
    for step in range(steps):
        for tile in range(tiles):
            if shape.left is not None:
                yield _load(f"x{{}}|{4 * (step * tiles + tile)}", *_left(shape.left, step, tile))
                if long:
                    yield from _rounded("x", 4 * (step * tiles + tile))
        for pair in range(pairs):
            number = 4 * (step * pairs + pair)
            if long and not shape.right.contracted:
                yield from _load_elements(shape.right, step, pair, number)
            else:
                yield _load(f"y{{}}|{number}", *_right(shape.right, step, pair))
            if long:
                yield from _rounded("y", number)
            for tile in range(tiles):
                if shape.left is not None:
                    words = [f"x{4 * (step * tiles + tile) + i}" for i in range(4)]
                else:
                    words = [f"${first + 4 * (tile * steps + step) + i}" for i in range(4)]
                for side in (0, 1):
                    block = 2 * pair + side
                    start = 4 * (tile * (shape.columns // 8) + block)
                    held = ", ".join(f"${start + i}" for i in range(4))
                    both = f"y{number + 2 * side}, y{number + 2 * side + 1}"
                    yield f"{name} {{{held}}}, {{{', '.join(words)}}}, {{{both}}}, {{{held}}};"


def _rounded(name: str, first: int) -> Iterator[str]:
    """Yield PTX that rounds four registers to tf32."""
    for number in range(first, first + 4):
        yield f"cvt.rna.tf32.f32 {name}{number}, {name}{number};"


def _element_places(tile: SharedTile, start: str, lane: str) -> Iterator[str]:
    """Yield PTX that makes the addresses of a lane's elements of f32, for `_load_elements`."""
    shift = {128: 0, 64: 1, 32: 2}[tile.span]
    yield f".reg .b32 n, p, q; shr.u32 n, {lane}, 2; and.b32 p, {lane}, 3; shl.b32 p, p, 1;"
    yield f"shr.u32 q, n, 2; and.b32 n, n, 3; mad.lo.u32 n, n, 4, {start};"
    yield f"mad.lo.u32 n, p, {tile.span}, n;"
    for odd in (0, 1):
        yield f"add.u32 t, p, {odd}; shr.u32 t, t, {shift}; xor.b32 t, t, q; shl.b32 t, t, 4;"
        yield f".reg .b32 b{odd}x<{tile.span // (2 * _PIECE)}>;"
        for pair in range(tile.span // (2 * _PIECE)):
            yield f"xor.b32 r, t, {pair * 2 * _PIECE}; add.u32 b{odd}x{pair}, n, r;"


def _load_elements(tile: SharedTile, step: int, pair: int, number: int) -> Iterator[str]:
    """Yield loads of 8 lines of 16 columns of f32, lines 2t and 2t + 1 to the lane t of a quad."""
    for side in (0, 1):
        block, within = divmod((2 * pair + side) * 2 * _PIECE, tile.span)
        offset = block * tile.block_bytes + step * 8 * tile.span
        for odd in (0, 1):
            place = f"[b{odd}x{within // (2 * _PIECE)}+{offset + odd * tile.span}]"
            yield f"ld.shared.b32 y{number + 2 * side + odd}, {place};"


def held_rows(tile: SharedTile, contracted: int, halves: int) -> Word:
    """Return a function that loads a left operand into registers, as `warp_operand` packs one.

    Its arguments: the operand's address, what the warp's rows are moved by within a line, the
    lane's number.
    """
    steps, tiles = contracted * tile.size // (2 * _PIECE), halves // 2
    count = 4 * steps * tiles

    def parts() -> Iterator[str]:
        yield ".reg .b32 r, m, one, two, t;"
        yield "and.b32 r, $L, 7; shr.u32 m, $L, 3; and.b32 one, m, 1; shr.u32 two, m, 1;"
        lines, pieces = ("one", "two") if tile.contracted else ("two", "one")
        yield from _lane_places("a", tile, "$A", lines, pieces, "$T")
        for rows in range(tiles):
            for step in range(steps):
                start = 4 * (rows * steps + step)
                yield _load(f"${{}}|{start}", *_left(tile, step, rows))
                if tile.size > _SHORT:
                    yield from _rounded("$", start)

    text = "{ " + " ".join(parts()) + " }"
    for name, number in (("$A", count), ("$T", count + 1), ("$L", count + 2)):
        text = text.replace(name, f"${number}")

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        constraints = ",".join(["=&r"] * count + ["r"] * 3 + [_MEMORY])
        result = ir.LiteralStructType([I32] * count)
        raw = asm(builder, result, text, constraints, list(values), effect=True)
        return pack(builder, [builder.extract_value(raw, number) for number in range(count)])

    return define("held_rows", tile_type("i32", count), ["u32", "u32", "i32"], generate)


def _lane_places(
    name: str, tile: SharedTile, start: str, lines: str, pieces: str, turn: str | None
) -> Iterator[str]:
    """Yield PTX that makes the addresses of a lane's line, one for each pair of pieces in a line.

    Args:
        name: The registers' prefix.
        tile: The tile.
        start: Its address.
        lines: The register that says whether the lane's line is 8 further on.
        pieces: The register that says whether its piece is the next one.
        turn: Bytes within a line that the warp's own rows start after, if they do.
    """
    per_line = tile.span // _PIECE
    shift = {128: 0, 64: 1, 32: 2}[tile.span]
    yield f".reg .b32 {name}line, {name}swap, {name}<{per_line // 2}>;"
    yield f"shl.b32 t, {lines}, 3; add.u32 t, t, r; mad.lo.u32 {name}line, t, {tile.span}, {start};"
    yield f"shr.u32 t, r, {shift}; xor.b32 t, t, {pieces}; shl.b32 {name}swap, t, 4;"
    if turn is not None:
        yield f"xor.b32 {name}swap, {name}swap, {turn};"
    for number in range(per_line // 2):
        yield f"xor.b32 t, {name}swap, {2 * number * _PIECE};"
        yield f"add.u32 {name}{number}, {name}line, t;"


def _right(tile: SharedTile, step: int, pair: int) -> tuple[str, int, bool]:
    """Return register, offset and transposition of a right operand's 16 by 16 elements."""
    along, across = (step, pair) if tile.contracted else (pair, step)
    return (*_placed("b", tile, along, across), not tile.contracted)


def _left(tile: SharedTile, step: int, rows: int) -> tuple[str, int, bool]:
    """Return the same of a left operand's."""
    along, across = (step, rows) if tile.contracted else (rows, step)
    return (*_placed("a", tile, along, across), not tile.contracted)


def _placed(name: str, tile: SharedTile, along: int, across: int) -> tuple[str, int]:
    """Return register and offset of 16 inner elements from 16 `along` on, 16 `across` lines on."""
    block, within = divmod(along * 2 * _PIECE, tile.span)
    # Lines go on by 16 of the other axis: rows, columns, or what one instruction contracts.
    return f"{name}{within // (2 * _PIECE)}", block * tile.block_bytes + across * 16 * tile.span


def _load(target: str, register: str, offset: int, transposed: bool) -> str:
    prefix, start = target.split("|")
    words = ", ".join(prefix.format(int(start) + i) for i in range(4))
    trans = ".trans" if transposed else ""
    return f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{words}}}, [{register}+{offset}];"


def warp_operand(dtype: str, columns: int, *, rows_first: bool = True, halves: int = 2) -> Word:
    """Return a function that rounds a fragment to an operand's type, packed as a left operand."""
    pairs = left_operands(columns)
    kind = "bf16x2" if dtype == "bf16" else "f16x2"
    long = dtype == "f32"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements = unpack(builder, values[0], columns // 4 * halves)
        words = []

        def element(rows: int, p: Place) -> ir.Value:
            place = Place(2 * rows + p.half, p.block, p.place)
            return elements[place.index(columns, rows_first=rows_first, halves=halves)]

        for rows in range(halves // 2):
            if long:
                for block, x, half in itertools.product(range(columns // 8), (0, 1), (0, 1)):
                    given = [element(rows, Place(half, block, x))]
                    words.append(asm(builder, I32, "cvt.rna.tf32.f32 $0, $1;", "=r,f", given))
                continue
            for pair in pairs:
                low, high = (element(rows, p) for p in pair)
                text = f"cvt.rn.{kind}.f32 $0, $1, $2;"
                words.append(asm(builder, I32, text, "=r,f,f", [high, low]))
        return pack(builder, words)

    kinds = [tile_type("f32", columns // 4 * halves)]
    result = tuple_of([INT32] * (columns // (4 if long else 8) * halves))
    return define("warp_operand", result, kinds, generate)
