"""Folding states across the threads of a unit: butterflies in a warp, one exchange between warps.

A state is a few values; each thread holds a tile of states. Afterwards every thread that took part
holds the folded tile, the same bits in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from redlang.codegen.banks import apart
from redlang.targets.kinds import I32, VOID, Kind, tuple_of
from redlang.targets.ptx.barriers import BARRIER, CLUSTER_BARRIER
from redlang.targets.ptx.calls import Body, body_of, call, results_of
from redlang.targets.ptx.inline import Values, Word, asm, define, pack, tile_type, unpack
from redlang.targets.ptx.shared import BYTES, base, load_at, store_at
from redlang.targets.ptx.shuffle import butterfly_move, moved

State = list[ir.Value]


def lanes(function: Word, count: int, masks: Sequence[int], *, ordered: bool = False) -> Word:
    """Return a function that folds tiles of states over lanes of the warp.

    Args:
        function: Combines two states, as for `tiles.fold`.
        count: States of a tile.
        masks: Lane bits to fold, in order; with `ordered` from the lowest bit up.
        ordered: Whether the state of the lower lane must stand left. Otherwise `function` must
            give the same bits either way round.
    """
    body = body_of(function)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        states = unpacked_states(builder, values, count)
        lane = asm(builder, I32, "mov.u32 $0, %laneid;", "=r", []) if ordered else None
        for mask in masks:
            move = butterfly_move(mask)
            others = [[moved(builder, value, move) for value in state] for state in states]
            states = [
                combined(builder, body, *_in_order(builder, lane, mask, own, other))
                for own, other in zip(states, others, strict=True)
            ]
        return packed_states(builder, body, states)

    return define("lanes", states_type(body, count), state_kinds(body, count), generate)


def _in_order(
    builder: ir.IRBuilder, lane: ir.Value | None, mask: int, own: State, other: State
) -> tuple[State, State]:
    if lane is None:
        return own, other
    bit = builder.and_(lane, ir.Constant(I32, mask))
    upper = builder.icmp_unsigned("!=", bit, ir.Constant(I32, 0))
    pairs = list(zip(own, other, strict=True))
    left = [builder.select(upper, theirs, mine) for mine, theirs in pairs]
    right = [builder.select(upper, mine, theirs) for mine, theirs in pairs]
    return left, right


def warps(function: Word, count: int, peers: int, offset: int) -> Word:
    """Return a function that folds tiles of states over `peers` warps of the block.

    It takes the thread's group among those that are not folded (i32), its number among the peers
    (i32), whether it writes (of the threads of a warp that hold the same states, one should), then
    the tiles. It waits for the whole block once.

    Args:
        function: Combines two states; the lower peer's stands left.
        count: States of a tile.
        peers: How many groups of threads hold parts.
        offset: Where its region of shared memory starts, in bytes.
    """
    body = body_of(function)
    sizes = [BYTES[code] for code in body.results]
    starts = warps_rows(body.results, count, peers)
    group_bytes = warps_bytes(body.results, count, peers)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        group, peer, writes, *tiles = values
        states = unpacked_states(builder, tiles, count)
        base = shared_address(builder, offset)
        own = builder.add(base, builder.mul(group, ir.Constant(I32, group_bytes)))
        with builder.if_then(writes):
            for part, number in starts:
                place = builder.add(own, builder.mul(peer, ir.Constant(I32, sizes[part])))
                store_at(builder, place, starts[part, number], [states[number][part]])
        asm(builder, VOID, BARRIER, "~{memory}", [], effect=True)
        folded = _read_and_folded(builder, body, own, starts, peers)
        return packed_states(builder, body, folded)

    kinds = ["i32", "i32", "bool", *state_kinds(body, count)]
    return define("warps", states_type(body, count), kinds, generate)


def blocks(function: Word, count: int, peers: int, offset: int) -> Word:
    """Return a function that folds tiles of states over the `peers` blocks of a cluster.

    It takes the thread's group among those that are not folded (i32), whether it writes (of the
    threads of a block that hold the same states, one should), then the tiles. Every block writes
    its states to all of them, then all wait for each other.

    Args:
        function: Combines two states; the lower block's stands left.
        count: States of a tile.
        peers: How many blocks hold parts.
        offset: Where its region of shared memory starts, in bytes.
    """
    body = body_of(function)
    sizes = [BYTES[code] for code in body.results]
    starts = warps_rows(body.results, count, peers)
    group_bytes = warps_bytes(body.results, count, peers)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        group, writes, *tiles = values
        states = unpacked_states(builder, tiles, count)
        base = shared_address(builder, offset)
        own = builder.add(base, builder.mul(group, ir.Constant(I32, group_bytes)))
        rank = asm(builder, I32, "mov.u32 $0, %cluster_ctarank;", "=r", [])
        with builder.if_then(writes):
            for peer in range(peers):
                text = f"mapa.shared::cluster.u32 $0, $1, {peer};"
                there = asm(builder, I32, text, "=r,r", [own])
                for part, number in starts:
                    place = builder.add(there, builder.mul(rank, ir.Constant(I32, sizes[part])))
                    value = states[number][part]
                    store_at(builder, place, starts[part, number], [value], "shared::cluster")
        asm(builder, VOID, CLUSTER_BARRIER, "~{memory}", [], effect=True)
        folded = _read_and_folded(builder, body, own, starts, peers)
        return packed_states(builder, body, folded)

    kinds = ["i32", "bool", *state_kinds(body, count)]
    return define("blocks", states_type(body, count), kinds, generate)


def _read_and_folded(
    builder: ir.IRBuilder,
    body: Body,
    own: ir.Value,
    starts: Mapping[tuple[int, int], int],
    peers: int,
) -> list[State]:
    """Return each state of a tile, read from all peers' rows in a group's region and folded."""
    found = {
        (part, number): load_at(builder, own, start, body.results[part], peers)
        for (part, number), start in starts.items()
    }
    parts = range(len(body.results))
    return [
        tree(
            builder,
            body,
            [[found[p, number][peer] for p in parts] for peer in range(peers)],
        )
        for number in sorted({number for _, number in starts})
    ]


def warps_rows(codes: Sequence[str], count: int, peers: int) -> dict[tuple[int, int], int]:
    """Return where the row of each value begins in a group's region of `warps`.

    There is one row of `peers` values for each value of each state, so that a thread reads
    neighbours at once. Wide values come first: each row is aligned to its widest access.
    """
    order = sorted(range(len(codes)), key=lambda part: -BYTES[codes[part]])
    starts: dict[tuple[int, int], int] = {}
    end = 0
    for part in order:
        for number in range(count):
            starts[part, number] = end
            end += BYTES[codes[part]] * peers
    return starts


def warps_bytes(codes: Sequence[str], count: int, peers: int) -> int:
    """Return the shared bytes that `warps` takes for one group of threads."""
    return apart(sum(BYTES[code] for code in codes) * count * peers)


def shared_address(builder: ir.IRBuilder, offset: int) -> ir.Value:
    """Return the address `offset` bytes into the dynamic shared memory."""
    return builder.add(base(builder), ir.Constant(I32, offset))


def tree(builder: ir.IRBuilder, body: Body, states: Sequence[State]) -> State:
    """Combine neighbouring states until one is left; the left one holds earlier elements."""
    level = list(states)
    while len(level) > 1:
        pairs = [
            combined(builder, body, left, right)
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def run(builder: ir.IRBuilder, body: Body, states: Sequence[State]) -> State:
    """Combine states one after another; the left one holds earlier elements."""
    first, *others = states
    for other in others:
        first = combined(builder, body, first, other)
    return first


def combined(builder: ir.IRBuilder, body: Body, left: State, right: State) -> State:
    """Combine two states."""
    return results_of(builder, body, call(builder, body, [*left, *right]))


def unpacked_states(builder: ir.IRBuilder, tiles: Sequence[ir.Value], count: int) -> list[State]:
    """Return the states of a thread's tiles."""
    columns = [unpack(builder, tile, count) for tile in tiles]
    return [list(state) for state in zip(*columns, strict=True)]


def packed_states(builder: ir.IRBuilder, body: Body, states: Sequence[State]) -> ir.Value:
    """Return tiles of states: one tile, or a tuple of them."""
    return pack(builder, [pack(builder, column) for column in zip(*states, strict=True)])


def states_type(body: Body, count: int) -> Kind:
    """Return the type of `packed_states`."""
    return tuple_of(state_kinds(body, count))


def state_kinds(body: Body, count: int) -> list[Kind]:
    """Return the types of the tiles of a state."""
    return [tile_type(code, count) for code in body.results]
