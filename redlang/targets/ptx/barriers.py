"""Threads waiting for each other: in a warp, in a block, and across blocks by a counter."""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import I32, VOID
from redlang.targets.ptx.inline import Values, Word, asm, define, instruction
from redlang.targets.ptx.shared import base, load_at, store_at

_MEMORY = "~{memory}"
_FENCE = "fence.acq_rel.gpu;"

BARRIER = "bar.sync 0;"

barrier = instruction("barrier", "void", (), BARRIER, _MEMORY, effect=True)
"""Wait for all threads of the block; their shared-memory writes are then visible."""

named_barrier = instruction(
    "named_barrier", "void", ("u32", "u32"), "bar.sync $0, $1;", f"r,r,{_MEMORY}", effect=True
)
"""`named_barrier(number, threads)`: wait for `threads` threads that name the same barrier."""

named_arrive = instruction(
    "named_arrive", "void", ("u32", "u32"), "bar.arrive $0, $1;", f"r,r,{_MEMORY}", effect=True
)
"""`named_arrive(number, threads)`: count as one of the threads of a barrier, without waiting."""

warp_barrier = instruction("warp_barrier", "void", (), "bar.warp.sync -1;", _MEMORY, effect=True)
"""Wait for the lanes of the warp."""

CLUSTER_BARRIER = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"

cluster_arrive = instruction(
    "cluster_arrive", "void", (), "barrier.cluster.arrive.relaxed;", _MEMORY, effect=True
)
"""Say that this thread has begun, without waiting; compute capability 9.0 and up."""

cluster_wait = instruction(
    "cluster_wait", "void", (), "barrier.cluster.wait;", _MEMORY, effect=True
)
"""Wait until all threads of the cluster have begun."""

wait_for_earlier = instruction(
    "wait_for_earlier", "void", (), "griddepcontrol.wait;", _MEMORY, effect=True
)
"""Wait until what was launched before is done and seen; compute capability 9.0 and up."""

let_later_begin = instruction(
    "let_later_begin", "void", (), "griddepcontrol.launch_dependents;", _MEMORY, effect=True
)
"""Let the next kernel begin, once all blocks of this one have said so or are done."""

fence = instruction("fence", "void", (), _FENCE, _MEMORY, effect=True)
"""Order this thread's memory accesses before and after, as other blocks see them."""


fetched = instruction(
    "fetched",
    "i32",
    ("i64", "i32"),
    "{ .reg .pred p; .reg .b32 w; mov.b32 w, %laneid; setp.eq.u32 p, w, 0; mov.b32 w, 0; "
    "@p atom.relaxed.gpu.global.inc.u32 w, [$1], $2; mov.b32 $0, w; }",
    f"=r,l,r,{_MEMORY}",
    effect=True,
)
"""`fetched(counter, last)`: the next number from 0 to `last`; the counter is then 0 again.

The first lane of a warp asks; the others have 0. It waits for the answer where it reads it.
"""

put_number = instruction(
    "put_number", "void", ("u32", "i64"), "st.shared.b64 [$0], $1;", f"r,l,{_MEMORY}", effect=True
)
"""`put_number(place, number)`: leave a number in shared memory."""

got_number = instruction(
    "got_number",
    "i64",
    ("u32",),
    "{ .reg .pred p; .reg .b32 low, high; mov.b32 low, %laneid; setp.eq.u32 p, low, 0; "
    "mov.b32 low, 0; mov.b32 high, 0; @p ld.shared.v2.b32 {low, high}, [$1]; "
    "shfl.sync.idx.b32 low, low, 0, 31, -1; shfl.sync.idx.b32 high, high, 0, 31, -1; "
    "mov.b64 $0, {low, high}; }",
    f"=l,r,{_MEMORY}",
    effect=True,
)
"""`got_number(place)`: a number in shared memory; the first lane of the warp reads for all."""


def arrival(offset: int) -> Word:
    """Return `arrive(counter, last)`: count the block and say whether it was the last of them.

    Memory that this block wrote before is seen by the last one after. The counter, a u32 in global
    memory, counts from 0 to `last` (i64) and is then 0 again.

    Args:
        offset: Four bytes of shared memory for the answer.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        counter, last = values
        last = builder.trunc(last, I32)
        # The barrier orders every thread's writes before the count of one, which releases them all.
        asm(builder, VOID, BARRIER, _MEMORY, [], effect=True)
        place = builder.add(base(builder), ir.Constant(I32, offset))
        thread = asm(builder, I32, "mov.u32 $0, %tid.x;", "=r", [])
        with builder.if_then(builder.icmp_unsigned("==", thread, ir.Constant(I32, 0))):
            text = "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;"
            before = asm(builder, I32, text, f"=r,l,r,{_MEMORY}", [counter, last], effect=True)
            store_at(builder, place, 0, [before])
        asm(builder, VOID, BARRIER, _MEMORY, [], effect=True)
        (before,) = load_at(builder, place, 0, "i32", 1)
        return builder.icmp_unsigned("==", before, last)

    return define("arrive", "bool", ("i64", "i64"), generate)
