"""Ranges of whole numbers in global memory, and answers about tiles in shared memory."""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import I32, I64, INT32, tuple_of
from redlang.targets.ptx.inline import Values, Word, asm, define, instruction, pack

LANES = 32
_SOME, _ALL = 1, 2


def extremes(dtype: str, pieces: int) -> Word:
    """Return `extremes(address, step, count)`: the least and greatest of up to 32 · pieces numbers.

    A warp's lanes share the work and the result. 64-bit numbers are brought into the range of 32
    bits, which keeps their order.

    Args:
        dtype: `i32` or `i64`.
        pieces: Numbers a lane.
    """
    wide = "ld.global.nc.b64 w, [$1]; cvt.sat.s32.s64 $0, w;"
    load = "ld.global.nc.b32 $0, [$1];" if dtype == "i32" else f"{{ .reg .b64 w; {wide} }}"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address, step, count = values
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", [])
        last = builder.sub(count, ir.Constant(I32, 1))
        least = greatest = None
        for piece in range(pieces):
            place = builder.add(lane, ir.Constant(I32, piece * LANES))
            inside = builder.icmp_signed("<", place, last)
            place = builder.sext(builder.select(inside, place, last), I64)
            at = builder.add(address, builder.mul(place, step))
            found = asm(builder, I32, load, "=r,l", [at], effect=True)
            if least is None or greatest is None:
                least = greatest = found
                continue
            below, above = (
                builder.icmp_signed(sign, found, x) for sign, x in (("<", least), (">", greatest))
            )
            least = builder.select(below, found, least)
            greatest = builder.select(above, found, greatest)
        ends = [
            asm(builder, I32, f"redux.sync.{op}.s32 $0, $1, -1;", "=r,r", [x], effect=True)
            for op, x in (("min", least), ("max", greatest))
        ]
        return pack(builder, ends)

    return define("extremes", tuple_of([INT32] * (2)), ("i64", "i64", "i32"), generate)


put_answer = instruction(
    "put_answer",
    "void",
    ("u32", "i32", "i32", "i32", "i32"),
    "{ .reg .pred p, q; .reg .b32 some, all, w; "
    "setp.le.s32 p, $1, $4; setp.le.and.s32 q, $3, $2, p; selp.b32 some, 1, 0, q; "
    "setp.eq.s32 p, $1, $2; setp.eq.and.s32 p, $3, $4, p; setp.eq.and.s32 p, $1, $3, p; "
    "setp.ne.and.s32 p, $1, 0x7fffffff, p; setp.ne.and.s32 p, $1, 0x80000000, p; "
    "selp.b32 all, 2, 0, p; or.b32 some, some, all; "
    "mov.b32 w, %laneid; setp.eq.u32 p, w, 0; @p st.shared.b8 [$0], some; }",
    "r,r,r,r,r,~{memory}",
    effect=True,
)
"""`put_answer(place, least, greatest, least, greatest)`: whether two ranges meet, and are one."""


def answer(kind: str, capacity: int) -> Word:
    """Return `answer(place, tile)`: what is remembered of a tile, as a truth value.

    Args:
        kind: `some` or `all`.
        capacity: Tiles that there are answers for; beyond, something takes part and something not.
    """
    bit = _SOME if kind == "some" else _ALL
    beyond = int(kind == "some")
    text = (
        "{ .reg .pred p; .reg .b32 w; .reg .b32 at; "
        f"setp.lt.u32 p, $2, {capacity}; mov.b32 w, {beyond * bit}; add.u32 at, $1, $2; "
        f"@p ld.shared.u8 w, [at]; and.b32 $0, w, {bit}; }}"
    )

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        found = asm(builder, I32, text, "=r,r,r,~{memory}", values, effect=True)
        return builder.icmp_unsigned("!=", found, ir.Constant(I32, 0))

    return define("answer", "bool", ("u32", "i32"), generate)
