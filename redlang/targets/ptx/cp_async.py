"""Tiles into shared memory by `cp.async`: all threads of a block copy pieces of 16 bytes.

A thread writes pieces at its number times 16 bytes and so on; what is swizzled is where it reads.
What lies outside of the array arrives as zeros. A piece of an array that is aligned to less is
copied in parts; parts of two bytes, which `cp.async` does not know, go through registers.

Sources: PTX ISA, "cp.async" and "bar.red".
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.schedule.fragments import SharedTile
from redlang.targets.kinds import I16, I32, I64, VOID
from redlang.targets.ptx.inline import Values, Word, asm, define, i32, instruction

_MEMORY = "~{memory}"
_PIECE = 16
_SHORT = 2

pieces_commit = instruction(
    "pieces_commit", "void", (), "cp.async.commit_group;", _MEMORY, effect=True
)
"""Make a group of the copies that this thread has started."""

any_thread = instruction(
    "any_thread",
    "i32",
    ("i32",),
    "{ .reg .pred p, q; setp.ne.b32 p, $1, 0; bar.red.or.pred q, 0, p; selp.b32 $0, 1, 0, q; }",
    f"=r,r,{_MEMORY}",
    effect=True,
)
"""`any_thread(found)`: wait for all threads of the block; 1 if any of them has found something."""


def pieces_arrived(pending: int) -> Word:
    """Return a statement that waits until at most `pending` groups of copies are under way."""
    text = f"cp.async.wait_group {pending};"
    return instruction("pieces_arrived", "void", (), text, _MEMORY, effect=True)


def piece_source(tile: SharedTile, lines: Sequence[int]) -> Word:
    """Return a function that tells where a thread's first piece of a tile comes from (i64).

    Its arguments: the address of the tile's first element, the thread's number, the stride of the
    axis of lines in bytes. With several axes of lines, strides are `copy_pieces`'s business.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        source, thread, step = values
        line, within = _first_piece(builder, tile, thread)
        source = builder.add(source, builder.zext(within, I64))
        if len(lines) > 1:
            return source
        return builder.add(source, builder.mul(builder.zext(line, I64), step))

    return define("piece_source", "i64", ("i64", "i32", "i64"), generate)


def _first_piece(
    builder: ir.IRBuilder, tile: SharedTile, thread: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the line that a thread's first piece is of, and the bytes before it there."""
    b = builder

    own = b.mul(thread, i32(_PIECE))
    turn = b.and_(b.lshr(own, i32(7)), i32(tile.span // _PIECE - 1))
    turned = b.xor(own, b.shl(turn, i32(4)))
    return b.udiv(turned, i32(tile.span)), b.and_(turned, i32(tile.span - 1))


def copy_pieces(
    tile: SharedTile, threads: int, lines: Sequence[int], *, whole: bool, piece: int = _PIECE
) -> Word:
    """Return a function that starts the copies of one tile.

    Its arguments: the tile's address in shared memory, what `piece_source` gave, the thread's
    number, the elements left along the inner axis; then for each axis of lines, slowest first, its
    stride in bytes and the elements left along it.

    Args:
        tile: How the tile lies in shared memory.
        threads: Threads of the block, a multiple of 64.
        lines: The tile's extent along each axis of lines; all but the first are powers of two.
        whole: Whether the tile never passes the end of the inner axis.
        piece: Bytes to which everything in global memory is aligned.
    """
    stride = threads * _PIECE
    assert stride % (8 * 128) == 0
    kinds = ["u32", "i64", "i32", "i32", *("i64", "i32") * len(lines)]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        b = builder

        target, source, thread, inner, *others = values
        own = b.mul(thread, i32(_PIECE))
        target = b.add(target, own)
        line, within = _first_piece(b, tile, thread)
        find = _several_axes if len(lines) > 1 else _one_axis
        rounds = -(-tile.block_bytes // stride)
        bytes_left = b.sub(b.mul(inner, i32(tile.size)), within)
        for turn in range(rounds):
            start, there = find(
                b, lines, others[::2], others[1::2], line, turn * stride // tile.span
            )
            start = b.add(source, start)
            inside = b.icmp_unsigned("<", own, i32(tile.block_bytes - turn * stride))
            last = turn == rounds - 1 and tile.block_bytes % stride != 0
            for block in range(tile.blocks):
                rest = None if whole else b.sub(bytes_left, i32(block * tile.span))
                place = b.add(target, i32(block * tile.block_bytes + turn * stride))
                begin = b.add(start, ir.Constant(I64, block * tile.span))
                copy = _copy if piece > _SHORT else _move
                copy(b, place, begin, piece, there, rest, inside if last else None)

    return define("copy_pieces", "void", kinds, generate)


def _one_axis(
    b: ir.IRBuilder,
    lines: Sequence[int],
    steps: Sequence[ir.Value],
    left: Sequence[ir.Value],
    line: ir.Value,
    further: int,
) -> tuple[ir.Value, ir.Value]:
    """Return the bytes to a line so many lines further on, and whether it is there."""
    limit = ir.Constant(I32, lines[0])
    end = b.select(b.icmp_signed("<", left[0], limit), left[0], limit)
    there = b.icmp_signed(">", b.sub(end, line), ir.Constant(I32, further))
    return b.mul(steps[0], ir.Constant(I64, further)), there


def _several_axes(
    b: ir.IRBuilder,
    lines: Sequence[int],
    steps: Sequence[ir.Value],
    left: Sequence[ir.Value],
    line: ir.Value,
    further: int,
) -> tuple[ir.Value, ir.Value]:
    """Return the bytes from the tile's start to a line, and whether it is there."""
    rest = b.add(line, ir.Constant(I32, further))
    start: ir.Value = ir.Constant(I64, 0)
    there: ir.Value = ir.Constant(ir.IntType(1), 1)
    for number in reversed(range(len(lines))):
        place = rest
        if number:
            place = b.and_(rest, ir.Constant(I32, lines[number] - 1))
            rest = b.udiv(rest, ir.Constant(I32, lines[number]))
        else:
            there = b.and_(there, b.icmp_signed("<", place, ir.Constant(I32, lines[0])))
        start = b.add(start, b.mul(b.zext(place, I64), steps[number]))
        there = b.and_(there, b.icmp_signed("<", place, left[number]))
    return start, there


def _clipped(builder: ir.IRBuilder, size: ir.Value, most: int) -> ir.Value:
    """Return a number of bytes between 0 and `most`."""
    for bound, sign in ((0, "<"), (most, ">")):
        limit = ir.Constant(I32, bound)
        size = builder.select(builder.icmp_signed(sign, size, limit), limit, size)
    return size


def _copy(
    b: ir.IRBuilder,
    target: ir.Value,
    source: ir.Value,
    piece: int,
    there: ir.Value,
    rest: ir.Value | None,
    whether: ir.Value | None,
) -> None:
    """Emit the asynchronous copies of 16 bytes.

    Args:
        b: The builder.
        target: Their address in shared memory.
        source: Their address in global memory.
        piece: Bytes of one copy.
        there: Whether to read them; else they are zeros.
        rest: How many bytes there are from them on; None for enough.
        whether: Whether to copy at all; None for yes.
    """
    kind = "cg.shared.global.L2::128B" if piece == _PIECE else "ca.shared.global"
    for offset in range(0, _PIECE, piece):
        size: ir.Value = ir.Constant(I32, piece)
        if rest is not None:
            size = _clipped(b, b.sub(rest, ir.Constant(I32, offset)), piece)
        size = b.select(there, size, ir.Constant(I32, 0))
        text = f"cp.async.{kind} [$0+{offset}], [$1+{offset}], {piece}, $2;"
        constraints = f"r,l,r,{_MEMORY}"
        arguments = [target, source, size]
        if whether is not None:
            text = "{ .reg .pred p; setp.ne.b32 p, $3, 0; @p " + text + " }"
            constraints = f"r,l,r,r,{_MEMORY}"
            arguments.append(b.zext(whether, I32))
        asm(b, VOID, text, constraints, arguments, effect=True)


def _move(
    b: ir.IRBuilder,
    target: ir.Value,
    source: ir.Value,
    piece: int,
    there: ir.Value,
    rest: ir.Value | None,
    whether: ir.Value | None,
) -> None:
    """Emit loads of single 16-bit elements and one store of them; arguments as `_copy`."""
    halves = []
    for offset in range(0, _PIECE, piece):
        shown = there
        if rest is not None:
            shown = b.and_(there, b.icmp_signed(">", rest, ir.Constant(I32, offset)))
        text = (
            "{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.b16 $0, 0; "
            f"@p ld.global.nc.b16 $0, [$1+{offset}]; }}"
        )
        given = [source, b.zext(shown, I32)]
        halves.append(asm(b, I16, text, f"=&h,l,r,{_MEMORY}", given, effect=True))
    words = [
        b.or_(b.zext(low, I32), b.shl(b.zext(high, I32), ir.Constant(I32, 16)))
        for low, high in zip(halves[::2], halves[1::2], strict=True)
    ]
    text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};"
    constraints = "r,r,r,r,r"
    if whether is not None:
        text = "{ .reg .pred p; setp.ne.b32 p, $5, 0; @p " + text + " }"
        words.append(b.zext(whether, I32))
        constraints += ",r"
    asm(b, VOID, text, f"{constraints},{_MEMORY}", [target, *words], effect=True)
