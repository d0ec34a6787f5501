"""Threads waiting for each other: in a warp, in a block, and across blocks by a counter."""

from __future__ import annotations

from redlang.targets.ptx.inline import (
    Intrinsic,
    instruction,
)

_MEMORY = "~{memory}"

BARRIER = "bar.sync 0;"

barrier = instruction("barrier", "void", (), BARRIER, _MEMORY, effect=True)
"""Wait for all threads of the block; their shared-memory writes are then visible."""

named_barrier = instruction(
    "named_barrier", "void", ("u32", "u32"), "bar.sync $0, $1;", f"r,r,{_MEMORY}", effect=True
)
"""`named_barrier(number, threads)`: wait for `threads` threads that name the same barrier."""

warp_barrier = instruction("warp_barrier", "void", (), "bar.warp.sync -1;", _MEMORY, effect=True)
"""Wait for the lanes of the warp."""

fence = instruction("fence", "void", (), "fence.acq_rel.gpu;", _MEMORY, effect=True)
"""Order this thread's memory accesses before and after, as other blocks see them."""

ticket = instruction(
    "ticket", "u32", ("i64",), "atom.relaxed.gpu.global.inc.u32 $0, [$1], -1;",
    f"=r,l,{_MEMORY}", effect=True,
)  # fmt: skip
"""`ticket(counter)`: count an arrival and return how many arrived before."""


def wrapping_ticket() -> Intrinsic:
    """Return `ticket(counter, last)`, which sets the counter back to 0 when `last` is drawn."""
    text = "atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;"
    return instruction(
        "wrapping_ticket", "u32", ("i64", "u32"), text, f"=r,l,r,{_MEMORY}", effect=True
    )
