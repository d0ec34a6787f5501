"""Elements of shared tiles that are not finite: taken out, and found again."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from redlang.targets.kinds import F32, F64, I16, I32, I64
from redlang.targets.ptx.inline import (
    REGISTER_LETTERS,
    Values,
    Word,
    asm,
    define,
    i32,
    instruction,
    pack,
    tile_type,
    unpack,
)

EXPONENTS = {"bf16": 0x7F80, "f16": 0x7C00, "f32": 0x7F800000, "f64": 0x7FF << 52}
"""The bits of the exponent: all of them set where a number is not finite."""
_PIECE = 16
_TOGETHER = 2
"""Pieces that a thread loads at once: a load takes longer than looking at what it brought."""
_WORD = 4
_WORD_BITS = 32


def checked(dtype: str, size: int, threads: int) -> Word:
    """Return `check(tile, thread, note)`: put 0 where elements of a shared tile are not finite.

    The note, a word for each warp of the `threads` that share the work, becomes 1 if this warp
    found any, else 0. The loop is one statement: the producer's group has few registers.
    """
    lines = [
        *_search(dtype, size, threads),
        "bar.warp.sync -1; setp.ne.b32 more, found, 0; vote.sync.any.pred more, more, -1;",
        "selp.b32 found, 1, 0, more;",
        "and.b32 any, $1, 31; setp.eq.u32 plain, any, 0;",
        # The lane that passes the tile on leaves the note.
        f"shr.u32 at, $1, 5; mad.lo.u32 at, at, {_WORD}, $2; @plain st.shared.b32 [at], found;",
        "fence.proxy.async.shared::cta; bar.warp.sync -1;",
    ]
    text = "{ .reg .b32 found; " + " ".join(lines) + " }"
    kinds = ("u32", "u32", "u32")
    return instruction("checked", "void", kinds, text, "r,r,r,~{memory}", effect=True)


def cleaned(dtype: str, size: int, threads: int) -> Word:
    """Return `clean(tile, thread)`: the same, and tell whether this thread found any (i32)."""
    lines = _search(dtype, size, threads, found="$0", tile="$1", thread="$2")
    text = "{ " + " ".join(lines) + " }"
    return instruction("cleaned", "i32", ("u32", "u32"), text, "=&r,r,r,~{memory}", effect=True)


def _search(
    dtype: str,
    size: int,
    threads: int,
    *,
    found: str = "found",
    tile: str = "$0",
    thread: str = "$1",
) -> list[str]:
    """Return the loops of a thread over its pieces of a tile: some at once, then one by one."""
    # A word holds two short elements, or one long one, or half of one: the upper half tells.
    own = EXPONENTS[dtype]
    wide = 2 if own >> _WORD_BITS else 1
    own >>= _WORD_BITS * (wide - 1)
    each = 0x00010001 if own < 1 << 16 else 1
    bits = _WORD_BITS // (2 if each > 1 else 1)
    exponent = own * each
    # Added to an exponent, it carries into the sign's place where all bits are set.
    lowest = (own & -own) * each
    ones = (1 << bits) - 1
    step = threads * _PIECE
    carry = f"and.b32 f, {{0}}, {exponent}; add.u32 f, f, {lowest};"
    mask = (
        f"{carry} shr.u32 f, f, {bits - 1}; and.b32 f, f, {each}; "
        f"mul.lo.u32 f, f, {ones}; not.b32 f, f;"
    )

    def loop(name: str, pieces: int) -> list[str]:
        words = [f"w{i}" for i in range(4 * pieces)]
        vectors = [f"{{{', '.join(words[i : i + 4])}}}" for i in range(0, len(words), 4)]
        elements = [words[i : i + wide] for i in range(0, len(words), wide)]
        return [
            f"setp.ge.u32 more, at, end; @more bra {name}_done${{:uid}};",
            f"{name}${{:uid}}:",
            # Quotes inside of a quoted text.
            r".pragma \22nounroll\22;",
            *(f"ld.shared.v4.b32 {v}, [at + {i * step}];" for i, v in enumerate(vectors)),
            "mov.b32 any, 0;",
            *(f"{carry.format(element[-1])} or.b32 any, any, f;" for element in elements),
            f"and.b32 any, any, {each << bits - 1}; setp.eq.u32 plain, any, 0;",
            f"@plain bra {name}_next${{:uid}};",
            *(
                f"{mask.format(element[-1])} {' '.join(f'and.b32 {w}, {w}, f;' for w in element)}"
                for element in elements
            ),
            *(f"st.shared.v4.b32 [at + {i * step}], {v};" for i, v in enumerate(vectors)),
            f"mov.b32 {found}, 1;",
            f"{name}_next${{:uid}}:",
            f"add.u32 at, at, {pieces * step}; setp.lt.u32 more, at, end; "
            f"@more bra {name}${{:uid}};",
            f"{name}_done${{:uid}}:",
        ]

    whole = size // (_TOGETHER * step) * _TOGETHER * step
    return [
        f".reg .pred more, plain; .reg .b32 at, end, any, f, w<{4 * _TOGETHER}>;",
        f"mov.b32 {found}, 0; mad.lo.u32 at, {thread}, {_PIECE}, {tile};",
        *([f"add.u32 end, {tile}, {whole};", *loop("some", _TOGETHER)] if whole else []),
        *([f"add.u32 end, {tile}, {size};", *loop("one", 1)] if size > whole else []),
    ]


def noted(warps: int) -> Word:
    """Return `any(note)`: whether a warp found something (i32).

    The first lane reads for all: it is the one whose arrival gives the tile, and the note, back.
    """
    loads = [f"@p ld.shared.b32 w, [$1 + {4 * warp}]; or.b32 $0, $0, w;" for warp in range(warps)]
    text = (
        "{ .reg .pred p; .reg .b32 w; mov.b32 $0, 0; mov.b32 w, %laneid; setp.eq.u32 p, w, 0; "
        f"mov.b32 w, 0; {' '.join(loads)} shfl.sync.idx.b32 $0, $0, 0, 31, -1; }}"
    )
    return instruction("noted", "i32", ("u32",), text, "=&r,r,~{memory}", effect=True)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Where a thread's elements of a product lie.

    Attributes:
        columns: Columns of the result.
        contracted: Elements of the contracted axis.
        rows_first: The order of accumulators.
        signs_first: The order of the computed operand.
        halves: Rows that a thread holds.
        lanes: Lanes that share a row.
        width: Neighbouring columns that a lane has.
        signs_width: Neighbouring elements of the contracted axis that it has.
    """

    columns: int
    contracted: int
    rows_first: bool
    signs_first: bool
    halves: int = 2
    lanes: int = 4
    width: int = 2
    signs_width: int = 2

    def index(self, half: int, column: int) -> int:
        """Return the accumulator of a row and one of a thread's columns."""
        each = self.columns // self.lanes
        return half * each + column if self.rows_first else column * self.halves + half

    def flag(self, half: int, place: int) -> int:
        """Return the flag of a row and one of a thread's elements of the contracted axis."""
        each = self.contracted // self.lanes
        return half * each + place if self.signs_first else place * self.halves + half


def spoiled(dtype: str, shape: Fragment) -> Word:
    """Return a function that adds elements which are not finite to accumulators, times a factor.

    Its arguments: the accumulators; for each element of the left operand, whether it lets an
    infinity that it is multiplied with keep its sign (bit 0), turns it around (bit 1), makes it NaN
    (both) or hides it (neither); the address of the right operand's first element, its strides
    along the contracted axis and the columns in elements, and how many elements there are along
    both.
    """
    exponent = EXPONENTS[dtype]
    word = next(w for w in (I16, I32, I64) if exponent < 1 << w.width)
    element, code = (F64, "f64") if word is I64 else (F32, "f32")
    size = word.width // 8
    each, halves = shape.columns // shape.lanes, range(shape.halves)
    count, flags = each * shape.halves, shape.contracted // shape.lanes * shape.halves
    letter = REGISTER_LETTERS[word]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        b = builder

        given, signs, first, step, column_step, left, columns_left = values
        lane = asm(b, I32, "mov.u32 $0, %laneid;", "=r", [])
        own = b.mul(b.and_(lane, i32(shape.lanes - 1)), i32(shape.width))
        packed = [_packed(b, unpack(b, signs, flags), shape, bit) for bit in range(2)]
        last = _smaller(b, left, shape.contracted)
        end = _own_columns(b, columns_left, shape)
        entry = b.block
        names = ("spoil", "row", "columns", "column", "spoiled")
        rows, body, columns, column, done = map(b.append_basic_block, names)
        b.branch(rows)

        # A bit for each of a thread's columns: whether infinity, and minus infinity, was added.
        found_bits = [(half, minus) for half in halves for minus in range(2)]

        b.position_at_end(rows)
        row = b.phi(I32)
        outer = [b.phi(I64) for _ in found_bits]
        for phi in (row, *outer):
            phi.add_incoming(ir.Constant(phi.type, 0), entry)
        b.cbranch(b.icmp_signed("<", row, last), body, done)

        b.position_at_end(body)
        shows = [[_bit(b, lane, row, words[half], shape) for words in packed] for half in halves]
        start = b.add(first, b.mul(b.mul(b.sext(row, I64), step), ir.Constant(I64, size)))
        # Words of bits may have made blocks of their own.
        before_columns = b.block
        b.branch(columns)

        b.position_at_end(columns)
        at = b.phi(I32)
        inner = [b.phi(I64) for _ in found_bits]
        at.add_incoming(i32(0), before_columns)
        for phi, before in zip(inner, outer, strict=True):
            phi.add_incoming(before, before_columns)
            before.add_incoming(phi, columns)
        row.add_incoming(b.add(row, i32(1)), columns)
        b.cbranch(b.icmp_signed("<", at, end), column, rows)

        b.position_at_end(column)
        place = _place(b, at, own, shape)
        inside = b.icmp_signed("<", place, columns_left)
        place = b.select(inside, place, i32(0))
        step_bytes = b.mul(column_step, ir.Constant(I64, size))
        address = b.add(start, b.mul(b.sext(place, I64), step_bytes))
        text = f"ld.global.b{word.width} $0, [$1];"
        bits = asm(b, word, text, f"={letter},l,~{{memory}}", [address], effect=True)
        bits = b.zext(bits, I32) if word is I16 else bits
        infinite, sign = (ir.Constant(bits.type, n) for n in (exponent, word.width - 1))
        size_bits = b.and_(bits, ir.Constant(bits.type, (1 << word.width - 1) - 1))
        bad = b.and_(b.icmp_unsigned(">=", size_bits, infinite), inside)
        is_nan = b.icmp_unsigned(">", size_bits, infinite)
        is_minus = b.icmp_unsigned("!=", b.lshr(bits, sign), ir.Constant(bits.type, 0))
        # NaN is infinities of both signs.
        one = b.and_(bad, b.or_(is_nan, b.not_(is_minus)))
        other = b.and_(bad, b.or_(is_nan, is_minus))
        place_bit = b.shl(ir.Constant(I64, 1), b.zext(at, I64))
        for phi, (half, minus) in zip(inner, found_bits, strict=True):
            keeps, turns = shows[half]
            kept, turned = (other, one) if minus else (one, other)
            here = b.or_(b.and_(keeps, kept), b.and_(turns, turned))
            bit = b.select(here, place_bit, ir.Constant(I64, 0))
            phi.add_incoming(b.or_(phi, bit), column)
        at.add_incoming(b.add(at, i32(1)), column)
        b.branch(columns)

        b.position_at_end(done)
        found = list(unpack(b, given, count))
        for phi, (half, minus) in zip(outer, found_bits, strict=True):
            infinity = ir.Constant(element, float("-inf") if minus else float("inf"))
            for own_column in range(each):
                index = shape.index(half, own_column)
                marked = b.and_(phi, ir.Constant(I64, 1 << own_column))
                is_marked = b.icmp_unsigned("!=", marked, ir.Constant(I64, 0))
                sum_ = b.fadd(found[index], infinity)
                found[index] = b.select(is_marked, sum_, found[index])
        return pack(b, found)

    fragment = tile_type(code, count)
    kinds = [fragment, tile_type("i32", flags), "i64", "i64", "i64", "i32", "i32"]
    return define("spoiled", fragment, kinds, generate)


def _smaller(b: ir.IRBuilder, number: ir.Value, limit: int) -> ir.Value:
    """Return a number, or the limit where that is less."""
    most = ir.Constant(I32, limit)
    return b.select(b.icmp_signed("<", number, most), number, most)


def _own_columns(b: ir.IRBuilder, columns_left: ir.Value, shape: Fragment) -> ir.Value:
    """Return how many of a thread's columns to look at: no constant, or a loop is unrolled."""
    group = shape.lanes * shape.width
    left = b.add(_smaller(b, columns_left, shape.columns), ir.Constant(I32, group - 1))
    return b.mul(b.lshr(left, _log2(group)), ir.Constant(I32, shape.width))


def _place(b: ir.IRBuilder, at: ir.Value, own: ir.Value, shape: Fragment) -> ir.Value:
    """Return the column that is a thread's number `at`; `own` is its first one."""
    group = b.shl(b.lshr(at, _log2(shape.width)), _log2(shape.lanes * shape.width))
    return b.add(own, b.add(group, b.and_(at, ir.Constant(I32, shape.width - 1))))


def _log2(power: int) -> ir.Constant:
    return ir.Constant(I32, power.bit_length() - 1)


def _packed(
    b: ir.IRBuilder, flags: list[ir.Value], shape: Fragment, bit: int
) -> list[list[ir.Value]]:
    """Return one bit of a thread's flags as words, for each of its rows."""
    rows = []
    for half in range(shape.halves):
        words: list[ir.Value] = []
        for at in range(shape.contracted // shape.lanes):
            flag = b.lshr(flags[shape.flag(half, at)], ir.Constant(I32, bit))
            flag = b.and_(flag, ir.Constant(I32, 1))
            shifted = b.shl(flag, ir.Constant(I32, at % _WORD_BITS))
            if at % _WORD_BITS:
                words[-1] = b.or_(words[-1], shifted)
            else:
                words.append(shifted)
        rows.append(words)
    return rows


def _bit(
    b: ir.IRBuilder, lane: ir.Value, row: ir.Value, words: list[ir.Value], shape: Fragment
) -> ir.Value:
    """Return the bit of element `row` of the contracted axis: one lane of the row's knows."""
    width = shape.signs_width
    group = b.udiv(row, i32(shape.lanes * width))
    at = b.add(b.mul(group, i32(width)), b.and_(row, i32(width - 1)))
    word = words[0]
    for place, other in enumerate(words[1:], 1):
        there = b.icmp_unsigned(">=", at, i32(place * _WORD_BITS))
        word = b.select(there, other, word)
    others = b.and_(lane, i32(_WORD_BITS - shape.lanes))
    holder = b.or_(others, b.and_(b.udiv(row, i32(width)), i32(shape.lanes - 1)))
    text = "shfl.sync.idx.b32 $0, $1, $2, 31, -1;"
    found = asm(b, I32, text, "=r,r,r", [word, holder], effect=True)
    bit = b.and_(b.lshr(found, b.and_(at, i32(_WORD_BITS - 1))), i32(1))
    return b.icmp_unsigned("!=", bit, i32(0))
