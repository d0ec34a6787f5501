"""Folding many values over all threads of a block: each value by one warp, from shared memory.

A butterfly in every warp moves each value five times, so that a block with many of them waits for
the unit that moves. Here all threads lay their values down in columns, a warp folds a column, and
all threads read the results: two barriers, however many values there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from redlang.targets.kinds import I32, VOID, tuple_of
from redlang.targets.ptx.across import combined, shared_address, tree
from redlang.targets.ptx.barriers import BARRIER
from redlang.targets.ptx.calls import Body, body_of
from redlang.targets.ptx.inline import Values, Word, asm, define, i32, pack, tile_type, unpack
from redlang.targets.ptx.shared import BYTES, load_at, store_at
from redlang.targets.ptx.shuffle import butterfly_move, moved

_WARP = 32
_RESULT = 8


@dataclass(frozen=True, slots=True)
class _Group:
    """Elements that one function folds.

    Attributes:
        body: The function.
        members: Their numbers among all elements.
        size: Bytes of an element.
        column, target: Offsets of the first one's column, and of its result.
        warp: The warp that folds the first one.
    """

    body: Body
    members: tuple[int, ...]
    size: int
    column: int
    target: int
    warp: int


def columns(functions: Sequence[tuple[Word, int]], threads: int, offset: int) -> Word:
    """Return a function that folds each element of some tiles over all threads of the block.

    Args:
        functions: For each tile what combines two elements, the lower thread's on the left, and
            how many elements it has.
        threads: Threads of the block.
        offset: Where its region of shared memory starts, in bytes: room for the elements of all
            threads, and 8 bytes for each result.
    """
    bodies = [(body_of(function), count) for function, count in functions]
    codes = [(body.results[0], count) for body, count in bodies]
    assert all(len(body.results) == 1 for body, _ in bodies), bodies
    groups = _groups(bodies, threads)
    result = [tile_type(code, count) for code, count in codes]
    returned = result[0] if len(result) == 1 else tuple_of(result)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        thread = asm(builder, I32, "mov.u32 $0, %tid.x;", "=r", [])
        begin = shared_address(builder, offset)
        elements = [
            element
            for (_, count), tile in zip(codes, values, strict=True)
            for element in unpack(builder, tile, count)
        ]
        for group in groups:
            own = builder.add(begin, builder.mul(thread, ir.Constant(I32, group.size)))
            for place, number in enumerate(group.members):
                column = group.column + place * group.size * threads
                store_at(builder, own, column, [elements[number]])
        asm(builder, VOID, BARRIER, "~{memory}", [], effect=True)
        for group in groups:
            _fold_group(builder, group, begin, thread, threads)
        asm(builder, VOID, BARRIER, "~{memory}", [], effect=True)
        targets = {
            number: group.target + place * _RESULT
            for group in groups
            for place, number in enumerate(group.members)
        }
        found = iter([targets[number] for number in sorted(targets)])
        tiles = [
            pack(builder, [load_at(builder, begin, next(found), code, 1)[0] for _ in range(count)])
            for code, count in codes
        ]
        if len(tiles) == 1:
            return tiles[0]
        return pack(builder, tiles)

    return define("columns", returned, result, generate)


def _groups(bodies: Sequence[tuple[Body, int]], threads: int) -> list[_Group]:
    """Return the elements that are folded by one function together, and where they lie."""
    members: dict[int, list[int]] = {}
    number = 0
    for body, count in bodies:
        members.setdefault(id(body), []).extend(range(number, number + count))
        number += count
    named = {id(body): body for body, _ in bodies}
    size = {key: BYTES[body.results[0]] for key, body in named.items()}
    target = sum(size[key] * len(own) for key, own in members.items()) * threads
    groups, column, warp = [], 0, 0
    for key in sorted(members, key=lambda key: -size[key]):
        own = members[key]
        groups.append(_Group(named[key], tuple(own), size[key], column, target, warp))
        column += size[key] * len(own) * threads
        target += _RESULT * len(own)
        warp += len(own)
    return groups


def _fold_group(
    builder: ir.IRBuilder,
    group: _Group,
    begin: ir.Value,
    thread: ir.Value,
    threads: int,
) -> None:
    """Fold the columns of a group, one warp each in turn."""
    warps = threads // _WARP
    # Asked of one lane, it is known to be the same in all: the warp folds as one.
    text = "shfl.sync.idx.b32 $0, $1, 0, 31, -1;"
    own = asm(builder, I32, text, "=r,r", [builder.lshr(thread, i32(5))], effect=True)
    own = builder.and_(builder.sub(own, i32(group.warp)), i32(warps - 1))
    lane = builder.and_(thread, i32(_WARP - 1))
    for turn in range(-(-len(group.members) // warps)):
        column = builder.add(own, i32(turn * warps))
        with builder.if_then(builder.icmp_unsigned("<", column, i32(len(group.members)))):
            place = builder.mul(column, i32(group.size * threads))
            place = builder.add(builder.add(begin, place), builder.mul(lane, i32(group.size)))
            value = _folded(builder, group, place, warps)
            target = builder.add(begin, builder.mul(column, i32(_RESULT)))
            store_at(builder, target, group.target, [value])


def _folded(builder: ir.IRBuilder, group: _Group, place: ir.Value, warps: int) -> ir.Value:
    """Return the column whose part for this lane begins at a place, folded by the warp."""
    (code,) = group.body.results
    step = _WARP * group.size
    states = [load_at(builder, place, group.column + n * step, code, 1) for n in range(warps)]
    state = tree(builder, group.body, states)
    for mask in (1, 2, 4, 8, 16):
        other = [moved(builder, value, butterfly_move(mask)) for value in state]
        state = combined(builder, group.body, state, other)
    return state[0]
