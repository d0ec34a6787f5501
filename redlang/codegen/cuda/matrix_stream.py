"""One unit's end beside the next one's beginning.

A consumer that runs through units one by one leaves the tensor core idle between them: the last
tile's late products, the results and the next unit's first products follow one another. Where the
next unit's operands have room beside this one's, the two meet in one tile:

    issue heads of the new unit's first tile; issue tails of the old one's last tile; wait for both;
    store the old one's results; element work of the new tile; pack computed operands

What the old unit's states were is kept until then, and accumulators start anew behind it. All other
tiles are what they are without a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redlang.codegen.cuda.matrix_producer import indented
from redlang.codegen.cuda.matrix_queue import Queue
from redlang.codegen.cuda.text_flow import needed, reads, renamed, without, writes
from redlang.codegen.writer import Names


@dataclass(frozen=True, slots=True)
class Stream:
    """The parts of a consumer's text.

    Attributes:
        more: The test that a unit has tiles left.
        begun: How many of the unit's lines come before its loop.
        first: The work on a unit's first tile with no products in flight.
        tile: That on any other.
        issued: What issues the last tile's late products.
        joint: What issues a first tile's products beside those of the unit before, up to where
            the latter are complete.
        rest: What follows it.
        last: The end of a last tile whose late products are issued.
        left: What gives back what a whole unit uses.
        accumulators: The variables of late products.
    """

    more: str
    begun: int
    first: Sequence[str]
    tile: Sequence[str]
    issued: Sequence[str]
    joint: Sequence[str]
    rest: Sequence[str]
    last: Sequence[str]
    left: Sequence[str]
    accumulators: frozenset[str]


def streamed(
    stream: Stream, queue: Queue, unit: Sequence[str], body: Sequence[str], names: Names
) -> list[str]:
    """Return a consumer's text over all units of a block.

    Args:
        stream: Its parts.
        queue: Where units come from.
        unit: Lines that say which tiles a unit has, but for what the queue hands on.
        body: Lines of a unit, without those of its loop.
        names: The module's.
    """
    begin, after = [*unit, *body[: stream.begun]], body[stream.begun :]
    changed = writes([*stream.first, *stream.tile, *stream.joint, *stream.rest])
    changed |= stream.accumulators
    own = without([*queue.handed_on("ended_place"), *begin], changed)
    ending = [*needed(own, reads(after)), *after]
    kept = sorted((reads(ending) & changed) - stream.accumulators)
    own_names = (writes(ending) | set(kept)) - stream.accumulators
    fresh = {name: names.fresh(f"ended_{name}") for name in sorted(own_names)}
    end = [*renamed(ending, fresh), queue.release("leads", "ended_place")]
    keep = [f"{fresh[name]} = {name}" for name in kept]
    following = [*stream.left, "ended_place = queue_place", *queue.advance()]
    anew = [*queue.handed_on(), *without(begin, stream.accumulators)]
    return [
        *queue.first(),
        *queue.number(),
        *queue.handed_on(),
        *begin,
        *stream.first,
        "while True:",
        f"    while {stream.more}:",
        *indented(indented(stream.tile)),
        *indented([*following, *keep, *queue.number()]),
        "    if number < i32(0):",
        "        break",
        *indented([*stream.issued, *anew, *stream.joint, *end]),
        *indented([*needed(begin, stream.accumulators), *stream.rest]),
        *stream.issued,
        *stream.last,
        *end,
    ]
