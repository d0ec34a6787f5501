"""What a block reads first, brought to L2 while it waits for the kernels before it.

A kernel that overlaps with the one before it (`chained`) may not read what that one may still
write. But it may prefetch it to L2, where everybody's stores go too, so nothing old is ever seen.
Memory then has work while the last blocks of one kernel end and the first of the next begin.

Kernels that store as much as they read do not: what is stored drives out what was prefetched.
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


def first_loop(body: Sequence[Statement]) -> Loop | None:
    """Return the first loop of a body."""
    return next((s for s in body if isinstance(s, Loop)), None)


def write(frame: Frame, accesses: Accesses, body: Sequence[Statement]) -> int:
    """Write what prefetches first tiles of arrays that only this unit reads; return their bytes.

    Args:
        frame: Where it goes; the axis of the first loop has its first range there.
        accesses: Where tiles lie.
        body: The unit's statements.
    """
    loop = first_loop(body)
    ranged = frozenset[str]().union(*(scope.axes for scope in frame.scopes))
    statements = [s for s in body if not isinstance(s, Loop | Branch)]
    statements += [] if loop is None else [s for s in loop.body if not isinstance(s, Loop | Branch)]
    stored = list(_stored(body))
    total = 0
    for load in _loads(statements):
        memory, axes = frame.memories[load.array], load.type.axes
        if memory.kind != "parameter" or not accesses.is_plain(load):
            continue
        if not ranged.issuperset(axes) or any(own.issuperset(axes) for own in stored):
            continue
        if accesses.hint(memory, axes) != "stream":
            continue
        pieces, size = accesses.pieces(load)
        size *= frame.plan.threads
        count = min(pieces, (PREFETCHED - total) // size)
        if count > 0:
            access, arguments = accesses.fetch(load, None)
            make = frame.module.declare(f"prefetch_{load.array}", f"t.prefetch({access}, {count})")
            frame.line(f"{make}({', '.join(arguments)})")
            total += count * size
    return total


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


def _loads(statements: Sequence[Statement]) -> list[Load]:
    """Return the loads of statements, each array's first one."""
    found: dict[str, Load] = {}
    for statement in statements:
        for node in (n for e in tidy.expressions(statement) for n in walk.nodes(e)):
            if isinstance(node, Load):
                found.setdefault(node.array, node)
    return list(found.values())
