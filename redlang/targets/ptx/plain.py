"""Products of one warp by plain multiply-adds of f32 or f64, operands from shared memory.

A warp has 32 rows: a thread holds every fourth of them, and of the columns every eighth one, or
16 bytes of neighbours of every 128. Both operands are read in pieces of 16 bytes; lanes that share
a row or a column read the same piece. A computed left operand goes through a scratch tile of its
warp. One product is one statement, a loop over eight elements of the contracted axis at a time:
written out, it would not fit in the instruction cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir

from redlang.schedule.fragments import SharedTile
from redlang.targets.kinds import F32, F64, VOID, Kind
from redlang.targets.ptx.inline import (
    REGISTER_LETTERS,
    Values,
    Word,
    asm,
    define,
    i32,
    pack,
    tile_type,
    unpack,
)

_MEMORY = "~{memory}"
_LANES = 8
_STEP = 8
_PIECE = 16
_SPAN = 128
_TYPES = {4: ("f32", F32), 8: ("f64", F64)}
"""Of elements, by their bytes."""


@dataclass(frozen=True, slots=True)
class PlainProduct:
    """The product of `4 halves` rows of `left` times `columns` columns of `right`.

    Attributes:
        columns: A multiple of 8; of a line's elements if the right operand's lines go along them.
        contracted: Extent of the contracted axis, a multiple of 8.
        right: How the right operand lies in shared memory, in lines of 128 bytes. The size of its
            elements, which all have, says whether they are f32 or f64.
        left: How the left operand does; its lines go along the contracted axis.
        accumulate: Whether to add to the accumulators.
        rows_first: The order of fragments.
        halves: Rows that a thread holds.
    """

    columns: int
    contracted: int
    right: SharedTile
    left: SharedTile
    accumulate: bool = False
    rows_first: bool = True
    halves: int = 8

    @property
    def code(self) -> str:
        """Return the type of all elements."""
        return _TYPES[self.right.size][0]

    @property
    def piece(self) -> int:
        """Return the elements of a piece."""
        return _PIECE // self.right.size

    @property
    def each(self) -> int:
        """Return the columns that a thread holds."""
        return self.columns // _LANES

    def index(self, half: int, column: int) -> int:
        """Return which element of a fragment an accumulator is."""
        return half * self.each + column if self.rows_first else column * self.halves + half


def plain_product(shape: PlainProduct) -> Word:
    """Return a function that multiplies.

    Its arguments: the accumulators if `shape.accumulate`, the addresses of the left operand's rows
    and of the right operand, the lane's number. It returns the accumulators.
    """
    assert shape.left.contracted, shape
    assert shape.left.span == shape.right.span == _SPAN, shape
    assert shape.left.size == shape.right.size, shape
    count = shape.each * shape.halves
    element = _TYPES[shape.right.size][1]
    fragment = tile_type(shape.code, count)
    kinds: list[Kind | str] = [fragment] if shape.accumulate else []
    kinds += ["u32", "u32", "i32"]
    places = [shape.index(h, c) for h in range(shape.halves) for c in range(shape.each)]
    text = "{ " + " ".join(product_text(shape)) + " }"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        rest = list(values)
        if shape.accumulate:
            given = unpack(builder, rest.pop(0), count)
            held = [given[place] for place in places]
        else:
            held = [ir.Constant(element, 0.0)] * count
        constraints = [f"=&{REGISTER_LETTERS[element]}"] * count + [
            str(number) for number in range(count)
        ]
        constraints += ["r"] * 3 + [_MEMORY]
        result = ir.LiteralStructType([element] * count)
        raw = asm(builder, result, text, ",".join(constraints), [*held, *rest], effect=True)
        found: list[ir.Value | None] = [None] * count
        for number, place in enumerate(places):
            found[place] = builder.extract_value(raw, number)
        return pack(builder, [value for value in found if value is not None])

    return define("plain_product", fragment, kinds, generate)


def product_text(shape: PlainProduct) -> Iterator[str]:
    """Yield the PTX of a whole product."""
    count = shape.each * shape.halves
    left, right, lane = (f"${2 * count + number}" for number in range(3))
    size, each = shape.right.size, shape.piece
    lines = 1 if shape.right.contracted else shape.right.blocks
    yield ".reg .pred more; .reg .b32 row, column, k, within, block, t, a, b, even, odd, own;"
    yield f".reg .{shape.code} x<{each * shape.halves}>, y<{each * lines}>;"
    # Rows whose number has the bit 4 have their pieces swapped by 4 more.
    yield f"shr.u32 row, {lane}, 3; and.b32 column, {lane}, 7;"
    yield f"mad.lo.u32 a, row, {_SPAN}, {left}; shl.b32 even, row, 4; xor.b32 odd, even, 64;"
    if shape.right.contracted:
        yield f"mad.lo.u32 b, column, {_SPAN}, {right}; shl.b32 own, column, 4;"
    else:
        yield f"mov.b32 b, {right}; .reg .b32 at<{_STEP}>;"
        for k in range(_STEP):
            yield f"xor.b32 t, column, {k}; shl.b32 at{k}, t, 4;"
    yield "mov.b32 k, 0;"
    yield "again${:uid}:"
    yield r".pragma \22nounroll\22;"
    for number in range(_STEP // each):
        yield from _piece(shape, number)
    if not shape.right.contracted:
        yield f"add.u32 b, b, {_STEP * _SPAN};"
    yield f"add.u32 k, k, {_STEP * size}; setp.lt.u32 more, k, {shape.contracted * size};"
    yield "@more bra again${:uid};"


def _piece(shape: PlainProduct, number: int) -> Iterator[str]:
    """Yield the products of one piece of the contracted axis."""
    each = shape.piece
    load = f"ld.shared.v{each}.{shape.code}"
    yield f"and.b32 within, k, {_SPAN - 1}; or.b32 within, within, {_PIECE * number};"
    yield f"shr.u32 block, k, 7; .reg .b32 e{number}, o{number};"
    yield f"mad.lo.u32 t, block, {shape.left.block_bytes}, a;"
    yield f"xor.b32 e{number}, within, even; add.u32 e{number}, e{number}, t;"
    yield f"xor.b32 o{number}, within, odd; add.u32 o{number}, o{number}, t;"
    for half in range(shape.halves):
        words = ", ".join(f"x{each * half + i}" for i in range(each))
        register = f"{'eo'[half % 2]}{number}"
        yield f"{load} {{{words}}}, [{register}+{half * 4 * _SPAN}];"
    if shape.right.contracted:
        yield f".reg .b32 w{number}; mad.lo.u32 t, block, {shape.right.block_bytes}, b;"
        yield f"xor.b32 w{number}, within, own; add.u32 w{number}, w{number}, t;"
        words = ", ".join(f"y{i}" for i in range(each))
        for column in range(shape.each):
            offset = column * _LANES * _SPAN
            yield f"{load} {{{words}}}, [w{number}+{offset}];"
            for i in range(each):
                yield from _multiply(shape, i, [(column, f"y{i}")])
        return
    for i in range(each):
        place = each * number + i
        yield f"add.u32 t, b, at{place};"
        columns = []
        for block in range(shape.columns // (each * _LANES)):
            words = ", ".join(f"y{each * block + x}" for x in range(each))
            offset = place * _SPAN + block * shape.right.block_bytes
            yield f"{load} {{{words}}}, [t+{offset}];"
            columns += [(each * block + x, f"y{each * block + x}") for x in range(each)]
        yield from _multiply(shape, i, columns)


def _multiply(shape: PlainProduct, i: int, columns: list[tuple[int, str]]) -> Iterator[str]:
    for column, word in columns:
        for half in range(shape.halves):
            held = f"${half * shape.each + column}"
            yield f"fma.rn.{shape.code} {held}, x{shape.piece * half + i}, {word}, {held};"


def plain_operand(
    columns: int, tile: SharedTile, *, rows_first: bool = True, halves: int = 8
) -> Word:
    """Return `put(address, fragment, lane)`: write a warp's fragment to its scratch tile."""
    each, piece = columns // _LANES, _PIECE // tile.size
    code, element = _TYPES[tile.size]
    text = f"st.shared.{code} [$0+{{}}], $1;"

    constraints = f"r,{REGISTER_LETTERS[element]},{_MEMORY}"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        b = builder

        address, fragment, lane = values
        elements = unpack(b, fragment, each * halves)
        row, column = b.lshr(lane, i32(3)), b.and_(lane, i32(7))
        start = b.add(address, b.mul(row, i32(_SPAN)))
        start = b.add(start, b.mul(b.and_(column, i32(piece - 1)), i32(tile.size)))
        upper = b.lshr(column, i32(piece.bit_length() - 1))
        for odd in (0, 1):
            swap = b.xor(row, i32(4 * odd))
            for group in range(each):
                block, first = divmod(_LANES // piece * group, _SPAN // _PIECE)
                own = b.xor(b.xor(upper, i32(first)), swap)
                place = b.add(start, b.mul(own, i32(_PIECE)))
                for half in range(odd, halves, 2):
                    index = half * each + group if rows_first else group * halves + half
                    offset = block * tile.block_bytes + half * 4 * _SPAN
                    given = [place, elements[index]]
                    asm(b, VOID, text.format(offset), constraints, given, effect=True)

    kinds = ["u32", tile_type(code, each * halves), "i32"]
    return define("plain_operand", "void", kinds, generate)
