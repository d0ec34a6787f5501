"""What a block reads first, brought to L2 while it waits for the kernels before it.

A kernel that overlaps with the one before it (`chained`) may not read what that one may still
write. But it may prefetch it to L2, where everybody's stores go too, so nothing old is ever seen.
Memory then has work while the last blocks of one kernel end and the first of the next begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.frame import Frame
from redlang.ir import walk
from redlang.ir.loops import Branch, Loop, Statement, Store
from redlang.ir.program import Load
from redlang.schedule import tidy

PREFETCHED = 80 * 1024
"""Bytes that the blocks of an SM prefetch at most: memory takes 2.5 µs for them on an H200, and the
last blocks of the kernel before wait as long. From 64 to 112 KiB it makes little difference."""
BESIDE_STORES, BLOCKS = 24 * 1024, 3
"""The same for kernels that store as much as they read, and the blocks that it must be enough for:
where few long rows are ahead of the others, they take 4 % longer (measured, not explained)."""
BESIDE_MANY = 48 * 1024
"""The same where results do not stay in the L2 cache; it need not be enough for several blocks."""
LINE, WIDE = 128, 16
"""Bytes that a prefetch brings, and bytes of a thread from which on it does not matter that its
neighbours ask for the same line."""


def first_loop(body: Sequence[Statement]) -> Loop | None:
    """Return the first loop of a body."""
    return next((s for s in body if isinstance(s, Loop)), None)


def write(frame: Frame, accesses: Accesses, body: Sequence[Statement]) -> int:
    """Write what prefetches first tiles of arrays that only this unit reads.

    Returns how many blocks of an SM should do so; 0 if nothing is written.

    Args:
        frame: Where it goes; the axis of the first loop has its first range there.
        accesses: Where tiles lie.
        body: The unit's statements.
    """
    ranged = frozenset[str]().union(*(scope.axes for scope in frame.scopes))
    loads = [x for x in _loads(body) if _is_own(x, frame, accesses, ranged)]
    sizes = []
    for load in loads:
        pieces, size = accesses.pieces(load)
        sizes.append((pieces, size * frame.plan.threads))
    most = PREFETCHED
    if any(own.issuperset(load.type.axes) for load in loads for own in _stored(body)):
        most = BESIDE_MANY
        if frame.classes.results == "stay":
            most = BESIDE_STORES
            if BLOCKS * sum(pieces * size for pieces, size in sizes) > most:
                return 0
    total = 0
    for load, (pieces, size) in zip(loads, sizes, strict=True):
        count = min(pieces, (most - total) // size)
        if count > 0:
            access, arguments = accesses.fetch(load, None)
            make = frame.module.declare(f"prefetch_{load.array}", f"t.prefetch({access}, {count})")
            frame.line(f"{make}({', '.join([*arguments, _asks(frame, load)])})")
            total += count * size
    return most // total if total else 0


def _asks(frame: Frame, load: Load) -> str:
    """Return whether a thread prefetches: of those whose narrow elements share a line, one does."""
    memory = frame.memories[load.array]
    strides = frame.classes.arrays[load.array].strides
    unit = next((axis for axis in load.type.axes if strides.get(axis) == 1), None)
    if unit is None:
        return "True"
    size = memory.dtype.bytes * frame.spread(unit).width
    if size >= WIDE:
        return "True"
    sharing = frame.plan.bits(unit)[: (LINE // size).bit_length() - 1]
    mask = sum(1 << bit for bit in sharing)
    return f"({frame.thread()} & i32({mask})) == i32(0)" if mask else "True"


def _is_own(load: Load, frame: Frame, accesses: Accesses, ranged: frozenset[str]) -> bool:
    """Tell whether the unit alone reads what a load reads, and where that is known at once."""
    memory, axes = frame.memories[load.array], load.type.axes
    if memory.kind != "parameter" or not accesses.is_plain(load) or not ranged.issuperset(axes):
        return False
    return accesses.is_read_once(memory, axes)


def _stored(body: Sequence[Statement]) -> Iterator[frozenset[str]]:
    """Yield the axes of what is stored."""
    for statement in body:
        match statement:
            case Store(axes=axes):
                yield frozenset(axes)
            case Loop(body=inner):
                yield from _stored(inner)
            case Branch(then=then, otherwise=otherwise):
                yield from _stored((*then, *otherwise))


def _loads(body: Sequence[Statement]) -> list[Load]:
    """Return each array's first load before and in the first loop."""
    loop = first_loop(body)
    statements = [*body, *([] if loop is None else loop.body)]
    found: dict[str, Load] = {}
    for statement in statements:
        if isinstance(statement, Loop | Branch):
            continue
        for node in (n for e in tidy.expressions(statement) for n in walk.nodes(e)):
            if isinstance(node, Load):
                found.setdefault(node.array, node)
    return list(found.values())
