"""Reductions over pairs of elements of one warp: any function of two sides, in f32 or f64.

    held[row, column] = step(held[row, column], left[row, k] ..., right[column, k] ...)  for all k

A thread has the same rows and columns as of a product, whatever instructions the kernel's products
are made of. Elements are read from shared memory a few at once, along the reduced axis; lanes that
share a row or a column read the same ones. The reduced axis is a loop over eight elements, which
written out would not fit in the instruction cache, and one over what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from redlang.schedule.fragments import WARP, SharedTile
from redlang.targets.kinds import F32, F64, I16, I32, VOID
from redlang.targets.ptx.calls import Body, body_of, call
from redlang.targets.ptx.convert import decode
from redlang.targets.ptx.inline import REGISTER_LETTERS, Values, Word, asm, define, pack, tile_type

STEP = 8
_PIECE = 4
_PIECE_BYTES = 16
_TYPES = {"f32": F32, "f64": F64}
_MEMORY = "~{memory}"
_ROLLED = r".pragma \22nounroll\22;"


@dataclass(frozen=True, slots=True)
class Pairs:
    """A reduction of `halves * 32 / lanes` rows and `columns` columns.

    Attributes:
        columns: Columns of the tile.
        lefts: Type and place in shared memory of each array with rows; lines go along the axis.
        rights: The same of each array with columns.
        initial: What a reduction over nothing is.
        whole: Whether the axis has a multiple of eight elements.
        halves: Rows that a thread holds.
        lanes: Lanes that share a row.
        neighbours: Columns beside each other that a lane has.
        rows_first: The order of fragments.
        code: The type of results.
    """

    columns: int
    lefts: tuple[tuple[str, SharedTile], ...]
    rights: tuple[tuple[str, SharedTile], ...]
    initial: float
    whole: bool = False
    halves: int = 8
    lanes: int = 8
    neighbours: int = 1
    rows_first: bool = True
    code: str = "f32"

    @property
    def piece(self) -> int:
        """Return the elements that are read at once."""
        size = max(tile.size for _, tile in (*self.lefts, *self.rights))
        return min(_PIECE, _PIECE_BYTES // size)

    @property
    def each(self) -> int:
        """Return the columns that a thread holds."""
        return self.columns // self.lanes

    def row(self, half: int) -> int:
        """Return how far a thread's rows are from its first one."""
        return half * (WARP // self.lanes)

    def column(self, number: int) -> int:
        """Return how far a thread's columns are from its first one."""
        group, place = divmod(number, self.neighbours)
        return group * self.lanes * self.neighbours + place

    def index(self, half: int, column: int) -> int:
        """Return which element of a fragment a pair's result is."""
        return half * self.each + column if self.rows_first else column * self.halves + half


def pairs(step: Word, shape: Pairs) -> Word:
    """Return a function that reduces over pairs.

    Its arguments: the addresses of the left operands' rows and of the right operands, the lane's
    number, the elements of the reduced axis; then what `step` takes after the elements.

    Args:
        step: Joins a result so far and a pair: the former, elements of the left operands and of the
            right ones, and what all pairs share.
        shape: How all lies in shared memory and registers.
    """
    body = body_of(step)
    sides = (*shape.lefts, *shape.rights)
    count = shape.each * shape.halves
    shared = body.arguments[1 + len(sides) :]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        places, (lane, length), given = (
            values[: len(sides)],
            values[len(sides) : len(sides) + 2],
            values[len(sides) + 2 :],
        )
        reader = _Reader(builder, shape, places, lane)

        def work(held: Sequence[ir.Value], k: ir.Value, size: int) -> list[ir.Value]:
            found = list(held)
            for first in range(0, size, shape.piece):
                piece = min(shape.piece, size)
                _reduced(builder, body, shape, reader, found, k, first, piece, given)
            return found

        held = [ir.Constant(_TYPES[shape.code], shape.initial)] * count
        end = builder.and_(length, ir.Constant(I32, -STEP))
        held = _looped(builder, ir.Constant(I32, 0), end, STEP, held, work)
        if not shape.whole:
            held = _looped(builder, end, length, 1, held, work)
        return pack(builder, held)

    kinds = ["u32"] * len(sides) + ["i32", "i32", *shared]
    return define("pairs", tile_type(shape.code, count), kinds, generate)


def _reduced(
    builder: ir.IRBuilder,
    body: Body,
    shape: Pairs,
    reader: _Reader,
    held: list[ir.Value],
    k: ir.Value,
    first: int,
    size: int,
    given: Sequence[ir.Value],
) -> None:
    """Join the pairs of a few elements of the reduced axis, from `k + first` on."""
    lefts = [
        [reader.read(number, shape.row(half), k, first, size) for number in range(len(shape.lefts))]
        for half in range(shape.halves)
    ]
    for column in range(shape.each):
        rights = [
            reader.read(len(shape.lefts) + number, shape.column(column), k, first, size)
            for number in range(len(shape.rights))
        ]
        for i in range(size):
            for half in range(shape.halves):
                place = shape.index(half, column)
                elements = [side[i] for side in (*lefts[half], *rights)]
                arguments = [held[place], *elements, *given]
                held[place] = call(builder, body, arguments)


def _looped(
    builder: ir.IRBuilder,
    start: ir.Value,
    stop: ir.Value,
    step: int,
    held: Sequence[ir.Value],
    work: Callable[[Sequence[ir.Value], ir.Value, int], list[ir.Value]],
) -> list[ir.Value]:
    """Emit a loop that is not unrolled."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(n) for n in ("head", "pairs", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(I32)
    k.add_incoming(start, before)
    values = [builder.phi(value.type) for value in held]
    for phi, value in zip(values, held, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", k, stop), inside, after)
    builder.position_at_end(inside)
    asm(builder, VOID, _ROLLED, "", [], effect=True)
    found = work(values, k, step)
    k.add_incoming(builder.add(k, ir.Constant(I32, step)), builder.block)
    for phi, value in zip(values, found, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values


class _Reader:
    """Reads elements of tiles in shared memory; lines of a tile are rows or columns.

    A thread's lines are its first one and such as differ from it in bits that that one lacks, so
    that what the number of a line does to the place of a piece is one of a few exclusive ors.
    """

    def __init__(
        self, builder: ir.IRBuilder, shape: Pairs, places: Sequence[ir.Value], lane: ir.Value
    ) -> None:
        self.builder = builder
        self.sides = (*shape.lefts, *shape.rights)
        b = builder
        bits = shape.lanes.bit_length() - 1
        row = b.lshr(lane, ir.Constant(I32, bits))
        column = b.and_(lane, ir.Constant(I32, shape.lanes - 1))
        column = b.mul(column, ir.Constant(I32, shape.neighbours))
        self.starts, self.turns = [], []
        for number, ((_, tile), place) in enumerate(zip(self.sides, places, strict=True)):
            line = row if number < len(shape.lefts) else column
            start = b.mul(line, ir.Constant(I32, tile.span))
            self.starts.append(b.add(place, start))
            self.turns.append(self._turn(tile, start))

    def _turn(self, tile: SharedTile, start: ir.Value) -> ir.Value:
        b = self.builder
        turned = b.and_(b.lshr(start, ir.Constant(I32, 7)), ir.Constant(I32, tile.span // 16 - 1))
        return b.shl(turned, ir.Constant(I32, 4))

    def read(self, number: int, line: int, k: ir.Value, first: int, size: int) -> list[ir.Value]:
        """Return so many elements of a line, counted from the thread's first one, from k on."""
        b = self.builder
        dtype, tile = self.sides[number]
        at = b.mul(k, ir.Constant(I32, tile.size))
        within = b.and_(at, ir.Constant(I32, tile.span - 1))
        within = b.or_(within, ir.Constant(I32, first * tile.size))
        block = b.lshr(at, ir.Constant(I32, tile.span.bit_length() - 1))
        turn = (line * tile.span >> 7) % (tile.span // 16) << 4
        within = b.xor(b.xor(within, self.turns[number]), ir.Constant(I32, turn))
        start = b.add(self.starts[number], b.mul(block, ir.Constant(I32, tile.block_bytes)))
        return _loaded(b, dtype, b.add(start, within), line * tile.span, size)


def _loaded(
    builder: ir.IRBuilder, dtype: str, place: ir.Value, offset: int, size: int
) -> list[ir.Value]:
    """Return a few elements of shared memory in the type they are computed in."""
    if dtype in _TYPES:
        return _words(builder, dtype, _TYPES[dtype], place, offset, size)
    if size == 1:
        (bits,) = _words(builder, "u16", I16, place, offset, 1)
        return decode(builder, dtype, bits, native_f8=False)
    words = _words(builder, "b32", I32, place, offset, size // 2)
    return [element for word in words for element in decode(builder, dtype, word, native_f8=False)]


def _words(
    builder: ir.IRBuilder, kind: str, type_: ir.Type, place: ir.Value, offset: int, count: int
) -> list[ir.Value]:
    letter = REGISTER_LETTERS[type_]
    if count == 1:
        text = f"ld.shared.{kind} $0, [$1+{offset}];"
        return [asm(builder, type_, text, f"={letter},r,{_MEMORY}", [place], effect=True)]
    names = ", ".join(f"${number}" for number in range(count))
    text = f"ld.shared.v{count}.{kind} {{{names}}}, [${count}+{offset}];"
    constraints = ",".join([*[f"={letter}"] * count, "r", _MEMORY])
    raw = asm(
        builder, ir.LiteralStructType([type_] * count), text, constraints, [place], effect=True
    )
    return [builder.extract_value(raw, number) for number in range(count)]
