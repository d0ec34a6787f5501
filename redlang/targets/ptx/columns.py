"""Folding many values over all threads of a block: each value by one warp, from shared memory.

A butterfly in every warp moves each value five times, so that a block with many of them waits for
the unit that moves. Here all threads lay their values down in columns, a warp folds a column, and
all threads read the results: two barriers, however many values there are.
"""

from __future__ import annotations

import contextlib
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
    """Fold the columns of a group: one warp each, or several side by side where they are more."""
    warps = threads // _WARP
    count = len(group.members)
    # Asked of one lane, it is known to be the same in all: the warp folds as one.
    text = "shfl.sync.idx.b32 $0, $1, 0, 31, -1;"
    own = asm(builder, I32, text, "=r,r", [builder.lshr(thread, i32(5))], effect=True)
    own = builder.and_(builder.sub(own, i32(group.warp)), i32(warps - 1))
    lane = builder.mul(builder.and_(thread, i32(_WARP - 1)), i32(group.size))
    columns = [builder.add(own, i32(turn * warps)) for turn in range(-(-count // warps))]
    with contextlib.ExitStack() as group_only:
        read, there = columns, None
        if count < warps:
            group_only.enter_context(builder.if_then(builder.icmp_unsigned("<", own, i32(count))))
        elif count % warps:
            # A warp without a last column folds the group's last one too, for nobody.
            there = builder.icmp_unsigned("<", columns[-1], i32(count))
            read = [*columns[:-1], builder.select(there, columns[-1], i32(count - 1))]
        first = builder.add(begin, lane)
        size = i32(group.size * threads)
        places = [builder.add(first, builder.mul(column, size)) for column in read]
        found = _folded(builder, group, places, warps)
        for column, value in zip(columns, found, strict=True):
            with contextlib.ExitStack() as last_only:
                if there is not None and column is columns[-1]:
                    last_only.enter_context(builder.if_then(there))
                target = builder.add(begin, builder.mul(column, i32(_RESULT)))
                store_at(builder, target, group.target, [value])


def _folded(
    builder: ir.IRBuilder, group: _Group, places: Sequence[ir.Value], warps: int
) -> list[ir.Value]:
    """Return columns whose parts for this lane begin at some places, folded by the warp.

    They are folded side by side, so that what one waits for hides behind the others.
    """
    (code,) = group.body.results
    step = _WARP * group.size
    parts = [
        [load_at(builder, place, group.column + n * step, code, 1) for n in range(warps)]
        for place in places
    ]
    states = [tree(builder, group.body, own) for own in parts]
    for mask in (1, 2, 4, 8, 16):
        others = [[moved(builder, v, butterfly_move(mask)) for v in state] for state in states]
        states = [
            combined(builder, group.body, state, other)
            for state, other in zip(states, others, strict=True)
        ]
    return [state[0] for state in states]
