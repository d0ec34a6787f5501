"""Bulk tensor copies and the barriers that say when they are done.

A tensor map travels by value as a kernel parameter; its address is what kernels see. A barrier is
eight bytes of shared memory; it is *full* when the bytes that were announced have arrived, *empty*
when every reader has arrived. Waits name the parity of the phase that they wait for.

Sources: PTX ISA, "cp.async.bulk.tensor" and "mbarrier", compute capability 9.0.
"""

from __future__ import annotations

from redlang.targets.ptx.inline import Word, instruction

_MEMORY = "~{memory}"


def copy_in(rank: int) -> Word:
    """Return `copy(target, map, barrier, c0, ...)`: start a copy of one box into shared memory.

    Coordinates count elements, the innermost dimension first; what lies outside the array arrives
    as zeros, and counts as bytes all the same.
    """
    places = ", ".join(f"${number + 3}" for number in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{places}}}], [$2];"
    )
    kinds = ("u32", "u64", "u32", *["i32"] * rank)
    constraints = ",".join(["r", "l", "r", *["r"] * rank, _MEMORY])
    return instruction("copy_in", "void", kinds, text, constraints, effect=True)


def copy_out(rank: int) -> Word:
    """Return `copy(source, map, whether, c0, ...)`: start a copy of one box from shared memory.

    Only threads whose `whether` is not 0 start one; what lies outside the array stays.
    """
    places = ", ".join(f"${number + 3}" for number in range(rank))
    text = (
        "{ .reg .pred p; setp.ne.b32 p, $2, 0; "
        f"@p cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group "
        f"[$1, {{{places}}}], [$0]; }}"
    )
    kinds = ("u32", "u64", "i32", *["i32"] * rank)
    constraints = ",".join(["r", "l", "r", *["r"] * rank, _MEMORY])
    return instruction("copy_out", "void", kinds, text, constraints, effect=True)


copies_commit = instruction(
    "copies_commit", "void", (), "cp.async.bulk.commit_group;", _MEMORY, effect=True
)
"""Make a group of the copies out that this thread started."""

copies_read = instruction(
    "copies_read", "void", (), "cp.async.bulk.wait_group.read 0;", _MEMORY, effect=True
)
"""Wait until this thread's copies out have read shared memory."""

prefetch_map = instruction(
    "prefetch_map", "void", ("u64",), "prefetch.tensormap [$0];", f"l,{_MEMORY}", effect=True
)
"""Fetch a tensor map before the first copy needs it."""

barrier_begin = instruction(
    "barrier_begin",
    "void",
    ("u32", "u32"),
    "mbarrier.init.shared::cta.b64 [$0], $1;",
    f"r,r,{_MEMORY}",
    effect=True,
)
"""`barrier_begin(barrier, arrivals)`: make a barrier whose phase ends after so many arrivals."""

barriers_begun = instruction(
    "barriers_begun",
    "void",
    (),
    "fence.mbarrier_init.release.cluster;",
    _MEMORY,
    effect=True,
)
"""Show new barriers to the copy engine."""

barrier_expect = instruction(
    "barrier_expect",
    "void",
    ("u32", "u32"),
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
    f"r,r,{_MEMORY}",
    effect=True,
)
"""`barrier_expect(barrier, bytes)`: arrive, and let the phase wait for so many bytes too."""

barrier_arrive = instruction(
    "barrier_arrive",
    "void",
    ("u32", "i32"),
    "{ .reg .pred p; setp.ne.b32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }",
    f"r,r,{_MEMORY}",
    effect=True,
)
"""`barrier_arrive(barrier, whether)`: arrive if `whether` is not 0, without a branch."""

barrier_wait = instruction(
    "barrier_wait",
    "void",
    ("u32", "u32"),
    "{ .reg .pred p; again${:uid}: "
    "mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@!p bra again${:uid}; }",
    f"r,r,{_MEMORY}",
    effect=True,
)
"""`barrier_wait(barrier, parity)`: wait for the phase of this parity to end."""

shared_written = instruction(
    "shared_written", "void", (), "fence.proxy.async.shared::cta;", _MEMORY, effect=True
)
"""Show this thread's writes of shared memory to the tensor core and the copy engine."""
