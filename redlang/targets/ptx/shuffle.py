"""Values across the lanes of a warp.

All 32 lanes take part: kernels keep whole warps together and guard their stores instead. A 64-bit
value travels as two 32-bit halves; a bool as an integer.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from redlang.targets.kinds import (
    F32,
    F64,
    I1,
    I32,
    I64,
    INT32,
    LLVM_TYPES,
    SCALARS,
    UINT32,
    Kind,
    Signature,
    count_of,
)
from redlang.targets.ptx.inline import (
    Typed,
    Values,
    Word,
    asm,
    define,
    define_generic,
    pack,
    unpack,
)

_HALVES = ir.LiteralStructType([I32, I32])
Move = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def moved(builder: ir.IRBuilder, value: ir.Value, move: Move) -> ir.Value:
    """Apply a move of 32-bit registers to a value of any compute type."""
    kind = value.type
    if kind == I32:
        return move(builder, value)
    if kind == F32:
        return builder.bitcast(move(builder, builder.bitcast(value, I32)), F32)
    if kind == I1:
        found = move(builder, builder.zext(value, I32))
        return builder.icmp_unsigned("!=", found, ir.Constant(I32, 0))
    whole = builder.bitcast(value, I64) if kind == F64 else value
    halves = asm(builder, _HALVES, "mov.b64 {$0, $1}, $2;", "=r,=r,l", [whole])
    low = move(builder, builder.extract_value(halves, 0))
    high = move(builder, builder.extract_value(halves, 1))
    joined = asm(builder, I64, "mov.b64 $0, {$1, $2};", "=l,r,r", [low, high])
    return builder.bitcast(joined, F64) if kind == F64 else joined


def butterfly_move(lanes: int) -> Move:
    """Return the move from lane `lane ^ lanes`."""

    def move(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        text = f"shfl.sync.bfly.b32 $0, $1, {lanes}, 31, -1;"
        return asm(builder, I32, text, "=r,r", [value], effect=True)

    return move


def butterfly(lanes: int) -> Word:
    """Return a function that exchanges a scalar or tile with the lane `lane ^ lanes`."""
    move = butterfly_move(lanes)

    def typed(kind: Kind) -> Typed:
        count = count_of(kind)

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            elements = unpack(builder, values[0], count)
            return pack(builder, [moved(builder, element, move) for element in elements])

        return Signature(kind, (kind,)), generate

    return define_generic(f"butterfly_{lanes}", 1, typed)


def _exchanged(kind: Kind, mask: Kind) -> Typed:
    count = count_of(kind)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        def move(inner: ir.IRBuilder, value: ir.Value) -> ir.Value:
            text = "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;"
            return asm(inner, I32, text, "=r,r,r", [value, values[1]], effect=True)

        elements = unpack(builder, values[0], count)
        return pack(builder, [moved(builder, element, move) for element in elements])

    return Signature(kind, (kind, INT32)), generate


exchanged = define_generic("exchanged", 2, _exchanged)
"""`exchanged(tile, mask)`: what lane `lane ^ mask` holds, for a mask known at run time."""


def _broadcast(kind: Kind, lane: Kind) -> Typed:
    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        def move(inner: ir.IRBuilder, value: ir.Value) -> ir.Value:
            text = "shfl.sync.idx.b32 $0, $1, $2, 31, -1;"
            return asm(inner, I32, text, "=r,r,r", [value, values[1]], effect=True)

        return moved(builder, values[0], move)

    return Signature(kind, (kind, INT32)), generate


broadcast = define_generic("broadcast", 2, _broadcast)
"""`broadcast(value, lane)`: the value that `lane` holds."""


def _warp_reduce(name: str, operation: str) -> Word:
    """Return a reduction of i32 or u32 over the warp; compute capability 8.0 and up."""

    def typed(kind: Kind) -> Typed:
        if kind not in (INT32, UINT32):
            return None
        suffix = "s32" if kind == INT32 else "u32"

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            text = f"redux.sync.{operation}.{suffix} $0, $1, -1;"
            return asm(builder, I32, text, "=r,r", values, effect=True)

        return Signature(kind, (kind,)), generate

    return define_generic(name, 1, typed)


warp_max = _warp_reduce("warp_max", "max")
warp_min = _warp_reduce("warp_min", "min")
warp_sum = _warp_reduce("warp_sum", "add")


def _ballot(builder: ir.IRBuilder, values: Values) -> Values:
    text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; vote.sync.ballot.b32 $0, p, -1; }"
    return asm(builder, I32, text, "=r,r", [builder.zext(values[0], I32)], effect=True)


ballot = define("ballot", "u32", ("bool",), _ballot)
"""`ballot(condition)`: one bit for each lane."""


def bits(source: str, target: str) -> Word:
    """Return a function that reads the bits of one compute type as another of the same width."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return builder.bitcast(values[0], LLVM_TYPES[target])

    assert SCALARS[source].bits == SCALARS[target].bits
    return define(f"{source}_as_{target}", target, (source,), generate)
