"""Shared tiles of 8-bit elements into tiles of 16 bits, as products read them; every value exact.

Eight lanes take a piece of 16 bytes of each of eight lines, which lie in different banks, and so
do the two pieces that it becomes. The bits of a number u below 256 are 1024 + u in f16 below the
first byte of 1024, and u * 2^-133 in bf16, as subnormal numbers and the least normal ones are
equally far apart; two factors bring that to u.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.schedule.fragments import STEP, SharedTile
from redlang.targets.kinds import I16, I32
from redlang.targets.ptx.convert import decode, encode
from redlang.targets.ptx.inline import Values, Word, asm, define, i32
from redlang.targets.ptx.shared import load_words, store_at

_PIECE = 16
_LINES = 8
_TOGETHER = 2
"""Pieces that a thread loads before it converts them."""
_ROUND = 4
"""Pieces of a line that threads share out at once, where they cannot share out all."""


def widened(
    dtype: str, into: str, narrow: SharedTile, wide: SharedTile, width: int, threads: int
) -> Word:
    """Return `widen(narrow, wide, thread)`: convert a tile, which `threads` threads share.

    Args:
        dtype: Of its elements: i8, u8 or an f8.
        into: What they become: f16 or bf16.
        narrow: How the tile lies.
        wide: How what it becomes lies.
        width: Elements of a line that count.
        threads: How many share the work; eight lanes keep together.
    """
    assert narrow.rows == wide.rows, (narrow, wide)
    pieces, octets = -(-width // STEP), threads // _LINES
    blocks = narrow.rows // _LINES
    # Where octets share out a line's pieces evenly, those of a thread lie a constant step apart.
    group = next((n for n in (pieces, _ROUND) if pieces % n == 0 and octets % n == 0), 0)
    own = group or pieces
    rounds, step = pieces // own, octets // own * _LINES if group else 0

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        first, second, thread = values
        lane = builder.and_(thread, i32(_LINES - 1))
        octet = builder.lshr(thread, i32(3))

        def places(task: ir.Value, round_: int) -> tuple[ir.Value, ir.Value, ir.Value]:
            """Return the addresses of a piece, and of the two that it becomes."""
            piece = builder.add(builder.urem(task, i32(own)), i32(round_ * own))
            line = builder.mul(builder.udiv(task, i32(own)), i32(_LINES))
            line = builder.add(line, lane)
            twice = builder.mul(piece, i32(2))
            at = builder.add(first, _place(builder, narrow, line, lane, piece))
            to = builder.add(second, _place(builder, wide, line, lane, twice))
            return at, to, builder.xor(to, i32(_PIECE))

        def convert(numbers: range, round_: int, known: tuple[ir.Value, ...] | None) -> None:
            found = [known or places(builder.add(octet, i32(n * octets)), round_) for n in numbers]
            loaded = [
                load_words(builder, at, n * step * narrow.span, I32, 4)
                for n, (at, *_) in zip(numbers, found, strict=True)
            ]
            for n, words, (_, *targets) in zip(numbers, loaded, found, strict=True):
                made = [pair for word in words for pair in _pairs(builder, dtype, into, word)]
                for half, to in enumerate(targets):
                    store_at(builder, to, n * step * wide.span, made[4 * half : 4 * half + 4])

        whole, left = divmod(blocks * own, octets)
        for round_ in range(rounds):
            known = places(octet, round_) if group else None
            for start in range(0, whole, _TOGETHER):
                convert(range(start, min(start + _TOGETHER, whole)), round_, known)
            if left:
                with builder.if_then(builder.icmp_unsigned("<", octet, i32(left))):
                    convert(range(whole, whole + 1), round_, known)

    return define("widened", "void", ("u32", "u32", "u32"), generate)


def _place(
    builder: ir.IRBuilder, tile: SharedTile, line: ir.Value, lane: ir.Value, piece: ir.Value
) -> ir.Value:
    """Return where a piece of a line is; `lane` is the line's number among eight."""
    per_line = tile.span // _PIECE
    turn = builder.lshr(builder.mul(lane, i32(tile.span)), i32(7))
    turn = builder.and_(turn, i32(per_line - 1))
    block = builder.udiv(piece, i32(per_line))
    within = builder.xor(builder.urem(piece, i32(per_line)), turn)
    start = builder.add(
        builder.mul(block, i32(tile.block_bytes)), builder.mul(line, i32(tile.span))
    )
    return builder.add(start, builder.mul(within, i32(_PIECE)))


def _pairs(builder: ir.IRBuilder, dtype: str, into: str, word: ir.Value) -> list[ir.Value]:
    """Return four elements of 8 bits as two words of two elements."""
    if dtype.startswith("f8"):
        halves = (word, builder.lshr(word, i32(16)))
        return [_float_pair(builder, dtype, into, builder.trunc(half, I16)) for half in halves]
    if dtype == "i8":
        # What is counted from -128 on is counted from 0 on.
        word = builder.xor(word, i32(0x80808080))
    return [_integer_pair(builder, dtype, into, word, order) for order in (0x4140, 0x4342)]


def _integer_pair(
    builder: ir.IRBuilder, dtype: str, into: str, word: ir.Value, order: int
) -> ir.Value:
    def made(text: str, *values: ir.Value | int) -> ir.Value:
        words = [i32(v | v << 16) if isinstance(v, int) else v for v in values]
        places = ", ".join(f"${number + 1}" for number in range(len(words)))
        constraints = ",".join(["=r", *["r"] * len(words)])
        return asm(builder, I32, f"{text} $0, {places};", constraints, words)

    filler = 0x6464 if into == "f16" else 0
    text = f"prmt.b32 $0, $1, $2, {order};"
    both = asm(builder, I32, text, "=r,r,r", [word, i32(filler | filler << 16)])
    if into == "f16":
        return made("add.rn.f16x2", both, 0xE480 if dtype == "i8" else 0xE400)
    scaled = made("mul.rn.bf16x2", both, 0x7F00)
    if dtype == "i8":
        return made("fma.rn.bf16x2", scaled, 0x4280, 0xC300)
    return made("mul.rn.bf16x2", scaled, 0x4280)


def _float_pair(builder: ir.IRBuilder, dtype: str, into: str, bits: ir.Value) -> ir.Value:
    if into == "f16":
        text = f"cvt.rn.f16x2.{dtype.removeprefix('f8')}x2 $0, $1;"
        return asm(builder, I32, text, "=r,h", [bits])
    return encode(builder, into, decode(builder, dtype, bits, native_f8=True), native_f8=True)
