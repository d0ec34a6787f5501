"""What generated CUDA text may call for matrix tiles, beside `tiles`; it says `w` for this module.

A fragment is a tile of f32 registers over a row and a column axis, spread as `schedule.fragments`
says. Products are asynchronous: a fragment that one returns must go through `wait` first.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.schedule.fragments import SharedTile
from redlang.targets.kinds import I32, SCALARS, Kind, Signature, count_of, tuple_of
from redlang.targets.ptx.across import combined, packed_states, state_kinds, states_type
from redlang.targets.ptx.answers import (
    extremes,
    is_set,
    next_tile,
    put_end,
    put_word,
    range_of,
)
from redlang.targets.ptx.barriers import (
    fetched,
    got_number,
    named_arrive,
    named_barrier,
    put_number,
    warp_barrier,
)
from redlang.targets.ptx.calls import body_of
from redlang.targets.ptx.checks import Fragment, checked, cleaned, noted, spoiled
from redlang.targets.ptx.cp_async import (
    any_thread,
    copy_pieces,
    piece_source,
    pieces_arrived,
    pieces_commit,
)
from redlang.targets.ptx.fragments import fetch, fetch_line, stage
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
from redlang.targets.ptx.mma import WarpProduct, held_rows, warp_operand, warp_product
from redlang.targets.ptx.pairs import Pairs, pairs
from redlang.targets.ptx.plain import PlainProduct, plain_operand, plain_product
from redlang.targets.ptx.shared import base
from redlang.targets.ptx.tma import (
    barrier_arrive,
    barrier_begin,
    barrier_expect,
    barrier_wait,
    barriers_begun,
    copies_commit,
    copies_read,
    copy_in,
    copy_out,
    prefetch_map,
    shared_written,
)
from redlang.targets.ptx.wgmma import (
    Product,
    claim_registers,
    operand,
    product,
    release_registers,
    wait,
)
from redlang.targets.ptx.widen import widened

CHAINS = 4
"""Independent partial results of a fold in a thread: enough to hide an instruction's latency, and
few enough to cost no registers."""


def _shared_base(builder: ir.IRBuilder, values: Values) -> Values:
    return base(builder)


shared_base = define("shared_base", "u32", (), _shared_base)
"""The address of the dynamic shared memory."""


def _opaque(builder: ir.IRBuilder, values: Values) -> Values:
    return asm(builder, I32, "mov.b32 $0, $1;", "=r,r", values, effect=True)


opaque = define("opaque", "u32", ("u32",), _opaque)
"""An address of which the compiler knows nothing, so that it keeps none derived from it."""


def _warp_uniform(builder: ir.IRBuilder, values: Values) -> Values:
    text = "shfl.sync.idx.b32 $0, $1, 0, 31, -1;"
    return asm(builder, I32, text, "=r,r", values, effect=True)


warp_uniform = define("warp_uniform", "i32", ("i32",), _warp_uniform)
"""A number that all lanes have, known to the compiler as such."""


def _larger(builder: ir.IRBuilder, values: Values) -> Values:
    return builder.select(builder.icmp_signed(">", *values), *values)


larger = define("larger", "i64", ("i64", "i64"), _larger)
"""The larger of two integers."""


def fold(function: Word, counts: dict[str, int], over: str) -> Word:
    """Return a function that combines the elements of fragments along `over`, as `tiles.fold`.

    Elements are combined in a few chains, in an order that is fixed but not the elements' own:
    `function` must be commutative.
    """
    body = body_of(function)
    axes = tuple(counts)
    place = axes.index(over)
    inner = 1
    for axis in axes[place + 1 :]:
        inner *= counts[axis]
    outer = 1
    for axis in axes[:place]:
        outer *= counts[axis]
    total = outer * counts[over] * inner

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        columns = [unpack(builder, value, total) for value in values]
        found = []
        for start in range(outer):
            for end in range(inner):
                places = [(start * counts[over] + i) * inner + end for i in range(counts[over])]
                states = [[column[at] for column in columns] for at in places]
                chains = states[:CHAINS]
                for number, state in enumerate(states[CHAINS:]):
                    at = number % CHAINS
                    chains[at] = combined(builder, body, chains[at], state)
                while len(chains) > 1:
                    pairs = zip(chains[::2], chains[1::2], strict=False)
                    joined = [combined(builder, body, a, b) for a, b in pairs]
                    chains = joined + chains[len(chains) & ~1 :]
                found.append(chains[0])
        return packed_states(builder, body, found)

    result = states_type(body, outer * inner)
    return define(body.python.__name__, result, state_kinds(body, total), generate)


def zeros(count: int, code: str = "f32") -> Word:
    """Return a function without arguments that gives a fragment of zeros."""
    kind = SCALARS[code]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return pack(builder, [ir.Constant(kind.llvm, 0)] * count)

    return define("zeros", tuple_of([kind] * count), (), generate)


def _weight(kind: Kind) -> Typed:
    count = count_of(kind)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        text = "ex2.approx.ftz.f32 $0, $1;"
        kind_ = ir.FloatType()
        powers = [
            asm(builder, kind_, text, "=f,f", [element])
            for element in unpack(builder, values[0], count)
        ]
        return pack(builder, powers)

    return Signature(kind, (kind,)), generate


power_of_two = define_generic("power_of_two", 1, _weight)
"""2^x of a fragment; at most 2 ulp, subnormal results are 0."""


__all__ = [
    "Fragment",
    "Pairs",
    "PlainProduct",
    "Product",
    "SharedTile",
    "WarpProduct",
    "any_thread",
    "barrier_arrive",
    "barrier_begin",
    "barrier_expect",
    "barrier_wait",
    "barriers_begun",
    "checked",
    "claim_registers",
    "cleaned",
    "copies_commit",
    "copies_read",
    "copy_in",
    "copy_out",
    "copy_pieces",
    "extremes",
    "fetch",
    "fetch_line",
    "fetched",
    "fold",
    "got_number",
    "held_rows",
    "is_set",
    "larger",
    "named_arrive",
    "named_barrier",
    "next_tile",
    "noted",
    "opaque",
    "operand",
    "pairs",
    "piece_source",
    "pieces_arrived",
    "pieces_commit",
    "plain_operand",
    "plain_product",
    "power_of_two",
    "prefetch_map",
    "product",
    "put_end",
    "put_number",
    "put_word",
    "range_of",
    "release_registers",
    "shared_base",
    "shared_written",
    "spoiled",
    "stage",
    "wait",
    "warp_barrier",
    "warp_operand",
    "warp_product",
    "warp_uniform",
    "widened",
    "zeros",
]
