"""States that blocks post to one of them: each word with a mark beside it, so that none is fenced.

A place in global memory holds a word and its mark, and is written and read as one: who finds the
mark has the word. Before and after every launch all places are zero, since who takes a state clears
what it took. Nothing else orders blocks, and no block waits for one that begins later, as long as
the one that takes is the last.

Source: PTX ISA, "Memory consistency model": an aligned access of 64 bits is one operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.targets.kinds import F32, F64, I1, I32, I64, LLVM_TYPES, VOID, tuple_of
from redlang.targets.ptx.inline import Values, Word, asm, define, pack, tile_type, unpack
from redlang.targets.ptx.shared import BYTES

PLACE = 8
"""Bytes of a word and its mark."""
_WORD = 4
_PAIR = ir.LiteralStructType([I32, I32])

Kinds = Sequence[tuple[str, int]]
"""The tiles of a state: type code and elements of each."""


def words(kinds: Kinds) -> int:
    """Return the 32-bit words of a state."""
    return sum(BYTES[code] // _WORD * count for code, count in kinds)


def post(*kinds: tuple[str, int]) -> Word:
    """Return a function that posts a state, which all threads of the block hold.

    Its arguments: the address of the unit's places (i64), the number of this part and how many
    parts there are (i64), then the tiles. There is one row of places for each word.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address, part, parts, *tiles = values
        given = [
            word
            for (_, count), tile in zip(kinds, tiles, strict=True)
            for element in unpack(builder, tile, count)
            for word in _taken_apart(builder, element)
        ]
        thread = asm(builder, I32, "mov.u32 $0, %tid.x;", "=r", [])
        chosen, *others = given
        for number, word in enumerate(others, 1):
            own = builder.icmp_unsigned("==", thread, ir.Constant(I32, number))
            chosen = builder.select(own, word, chosen)
        with builder.if_then(builder.icmp_unsigned("<", thread, ir.Constant(I32, len(given)))):
            row = builder.mul(builder.zext(thread, I64), parts)
            place = builder.mul(builder.add(row, part), ir.Constant(I64, PLACE))
            text = (
                "{ .reg .b64 both; mov.b64 both, {$1, 1}; st.relaxed.gpu.global.b64 [$0], both; }"
            )
            place = builder.add(address, place)
            asm(builder, VOID, text, "l,r,~{memory}", [place, chosen], effect=True)

    tiles = [tile_type(*kind) for kind in kinds]
    return define("post", "void", ["i64", "i64", "i64", *tiles], generate)


def taken(*kinds: tuple[str, int]) -> Word:
    """Return a function that waits for the state of a part, clears its places and returns it.

    Its arguments: the address of the unit's places (i64), the number of the part and how many parts
    there are (i64), and whether this thread takes one at all; else it returns zeros.
    """
    count = words(kinds)
    result = [tile_type(*kind) for kind in kinds]
    returned = result[0] if len(kinds) == 1 else tuple_of(result)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address, part, parts, some = values
        size = ir.Constant(I64, PLACE)
        first = builder.add(address, builder.mul(part, size))
        step = builder.mul(parts, size)
        shape = ir.LiteralStructType([I32] * count) if count > 1 else I32
        constraints = ",".join([*["=&r"] * count, "l,l,r,~{memory}"])
        given = [first, step, builder.zext(some, I32)]
        raw = asm(builder, shape, _taking(count), constraints, given, effect=True)
        found = iter([builder.extract_value(raw, n) for n in range(count)] if count > 1 else [raw])
        tiles = [
            pack(builder, [_put_together(builder, code, found) for _ in range(elements)])
            for code, elements in kinds
        ]
        if len(tiles) == 1:
            return tiles[0]
        return pack(builder, tiles)

    return define("taken", returned, ("i64", "i64", "i64", "bool"), generate)


def _taking(count: int) -> str:
    """Return the PTX that loads all words until each has its mark, then clears them."""
    first, step, some = (f"${count + number}" for number in range(3))
    lines = [".reg .pred go, p; .reg .b64 none, at; mov.b64 none, 0;"]
    lines.append(f".reg .b32 mark, all; .reg .b64 both<{count}>;")
    lines.append(f"setp.ne.b32 go, {some}, 0;")
    lines += [f"mov.b64 both{n}, none;" for n in range(count)]
    lines.append("AGAIN${:uid}:")
    lines.append(f"mov.b64 at, {first}; mov.b32 all, 1;")
    lines += [
        f"@go ld.relaxed.gpu.global.b64 both{n}, [at]; add.s64 at, at, {step};"
        for n in range(count)
    ]
    lines += [f"mov.b64 {{${n}, mark}}, both{n}; and.b32 all, all, mark;" for n in range(count)]
    # The lanes of a warp wait together, so that they are known to go on together.
    lines += ["setp.eq.and.b32 p, all, 0, go;", "vote.sync.any.pred p, p, -1;"]
    lines += ["@p bra AGAIN${:uid};", f"mov.b64 at, {first};"]
    clear = f"@go st.relaxed.gpu.global.b64 [at], none; add.s64 at, at, {step};"
    return "{ " + " ".join([*lines, *[clear] * count]) + " }"


def _taken_apart(builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    kind = value.type
    if kind == I1:
        return [builder.zext(value, I32)]
    if kind in (I32, F32):
        return [builder.bitcast(value, I32)]
    whole = builder.bitcast(value, I64)
    halves = asm(builder, _PAIR, "mov.b64 {$0, $1}, $2;", "=r,=r,l", [whole])
    return [builder.extract_value(halves, number) for number in range(2)]


def _put_together(builder: ir.IRBuilder, code: str, found: Values) -> ir.Value:
    kind = LLVM_TYPES[code]
    low = next(found)
    if kind == I1:
        return builder.icmp_unsigned("!=", low, ir.Constant(I32, 0))
    if BYTES[code] == _WORD:
        return builder.bitcast(low, kind)
    whole = asm(builder, I64, "mov.b64 $0, {$1, $2};", "=l,r,r", [low, next(found)])
    return builder.bitcast(whole, kind) if kind == F64 else whole
