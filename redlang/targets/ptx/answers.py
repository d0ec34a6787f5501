"""Ends of whole numbers in global memory, and what is known of tiles: a bit each, in shared memory.

Words of shared memory are read by the first lane of a warp for all, or by a thread alone.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import I32, I64, INT64, tuple_of
from redlang.targets.ptx.inline import Values, Word, asm, define, instruction, pack

LANES = 32
_BITS = {"i": "s", "u": "u"}
_MEMORY = "~{memory}"
_FIRST = ".reg .pred own; .reg .b32 w, at; mov.b32 w, %laneid; setp.eq.u32 own, w, 0;"
_READ = "mov.b32 w, 0; @{0} ld.shared.b32 w, [at]; shfl.sync.idx.b32 w, w, 0, 31, -1;"


def extremes(dtype: str, pieces: int) -> Word:
    """Return `extremes(address, step, count)`: the least and greatest of up to 32 · pieces numbers.

    A warp's lanes share the work and the result.

    Args:
        dtype: An integer of up to 64 bits, with a sign if it has so many.
        pieces: Numbers a lane.
    """
    load = f"ld.global.nc.{_BITS[dtype[0]]}{dtype[1:]} $0, [$1];"
    move = (
        "{{ .reg .b32 a, b; mov.b64 {{a, b}}, $1; shfl.sync.bfly.b32 a, a, {0}, 31, -1; "
        "shfl.sync.bfly.b32 b, b, {0}, 31, -1; mov.b64 $0, {{a, b}}; }}"
    )

    def chosen(builder: ir.IRBuilder, sign: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return builder.select(builder.icmp_signed(sign, a, b), a, b)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address, step, count = values
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        last = builder.sub(count, ir.Constant(I32, 1))
        found = []
        for piece in range(pieces):
            place = builder.add(lane, ir.Constant(I32, piece * LANES))
            inside = builder.icmp_signed("<", place, last)
            place = builder.sext(builder.select(inside, place, last), I64)
            at = builder.add(address, builder.mul(place, step))
            found.append(asm(builder, I64, load, "=l,l", [at]))
        ends = []
        for sign in "<>":
            end = found[0]
            for other in found[1:]:
                end = chosen(builder, sign, end, other)
            for bit in range(LANES.bit_length() - 1):
                text = move.format(1 << bit)
                other = asm(builder, I64, text, "=l,l", [end], effect=True)
                end = chosen(builder, sign, end, other)
            ends.append(end)
        return pack(builder, ends)

    return define("extremes", tuple_of([INT64] * 2), ("i64", "i64", "i32"), generate)


put_end = instruction(
    "put_end",
    "void",
    ("i64", "i64", "i32"),
    "{ .reg .pred p; setp.ne.b32 p, $2, 0; @p st.global.b64 [$0], $1; }",
    f"l,l,r,{_MEMORY}",
    effect=True,
)
"""`put_end(address, number, whether)`: store a number if `whether` is not 0."""


def _range_of(builder: ir.IRBuilder, values: Values) -> Values:
    ends = []
    for sign, start in zip("<>", values[:2], strict=True):
        a, b = (
            asm(
                builder,
                I64,
                "ld.global.b64 $0, [$1];",
                f"=l,l,{_MEMORY}",
                [builder.add(start, builder.mul(place, ir.Constant(I64, 8)))],
                effect=True,
            )
            for place in values[2:]
        )
        ends.append(builder.select(builder.icmp_signed(sign, a, b), a, b))
    return pack(builder, ends)


range_of = define("range_of", tuple_of([INT64] * 2), ("i64", "i64", "i64", "i64"), _range_of)
"""`range_of(least, greatest, first, last)`: the ends of two tiles' numbers, at these addresses."""

put_word = instruction(
    "put_word",
    "void",
    ("u32", "i32"),
    "{ .reg .pred p; .reg .b32 w, v; setp.ne.b32 p, $1, 0; vote.sync.ballot.b32 w, p, -1; "
    "mov.b32 v, %laneid; setp.eq.u32 p, v, 0; @p st.shared.b32 [$0], w; }",
    f"r,r,{_MEMORY}",
    effect=True,
)
"""`put_word(place, whether)`: leave a bit of each lane; the first lane writes them."""


def next_tile(capacity: int, *, alone: bool = False) -> Word:
    """Return `next_tile(place, tile, stop)`: the first tile from `tile` on whose bit is set.

    Args:
        capacity: Tiles that there are bits for; those beyond count as set.
        alone: Whether one thread asks, not a warp.
    """
    read = "ld.shared.b32 w, [at];" if alone else _READ.format("own")
    text = (
        f"{{ .reg .pred p; {_FIRST} mov.b32 $0, $2; "
        f"again${{:uid}}: setp.lt.s32 p, $0, $3; setp.lt.and.s32 p, $0, {capacity}, p; "
        "@!p bra done${:uid}; shr.u32 at, $0, 5; shl.b32 at, at, 2; add.u32 at, at, $1; "
        f"{read} and.b32 at, $0, 31; shr.u32 w, w, at; setp.ne.b32 p, w, 0; "
        "@p brev.b32 w, w; @p bfind.shiftamt.u32 w, w; @p add.u32 $0, $0, w; "
        "@p bra done${:uid}; or.b32 $0, $0, 31; add.u32 $0, $0, 1; bra again${:uid}; "
        "done${:uid}: }"
    )
    return instruction(
        "next_tile", "i32", ("u32", "i32", "i32"), text, f"=&r,r,r,r,{_MEMORY}", effect=True
    )


def is_set(capacity: int) -> Word:
    """Return `is_set(place, tile)`: whether a tile's bit is; those beyond `capacity` are not."""
    text = (
        f"{{ .reg .pred p; {_FIRST} setp.lt.and.s32 p, $2, {capacity}, own; "
        "shr.u32 at, $2, 5; shl.b32 at, at, 2; add.u32 at, at, $1; "
        f"{_READ.format('p')} and.b32 at, $2, 31; shr.u32 w, w, at; and.b32 $0, w, 1; }}"
    )

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        found = asm(builder, I32, text, f"=&r,r,r,{_MEMORY}", values, effect=True)
        return builder.icmp_unsigned("!=", found, ir.Constant(I32, 0))

    return define("is_set", "bool", ("u32", "i32"), generate)
