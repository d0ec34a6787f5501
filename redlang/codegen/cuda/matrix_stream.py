"""One unit's end beside the next one's beginning.

A consumer that runs through units one by one leaves the tensor core idle between them: the last
tile's late products, the results and the next unit's first products follow one another. Where the
next unit's operands have room beside this one's, tiles of all units form one stream instead:

    issue heads of tile j; issue tails of tile j - 1; wait for both;
    element work of tile j; move accumulators; pack computed operands

holds for any two neighbours, also if they belong to two units. Then what the earlier unit's states
were is kept until its last products are complete, its results leave, and accumulators start anew.
That the wait comes first costs nothing: `ptxas` moves it there, and another warp group fills in.
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
        tile: That on any other, up to where the last tile's products are complete.
        rest: What follows it.
        last: The last tile's late products.
        left: What gives back what a whole unit uses.
        accumulators: The variables of late products.
    """

    more: str
    begun: int
    first: Sequence[str]
    tile: Sequence[str]
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
    changed = writes([*stream.first, *stream.tile, *stream.rest]) | stream.accumulators
    own = without([*queue.handed_on("ended_place"), *begin], changed)
    ending = [*needed(own, reads(after)), *after]
    kept = sorted((reads(ending) & changed) - stream.accumulators)
    own_names = (writes(ending) | set(kept)) - stream.accumulators
    fresh = {name: names.fresh(f"ended_{name}") for name in sorted(own_names)}
    end = [*renamed(ending, fresh), queue.release("leads", "ended_place")]
    keep = [f"{fresh[name]} = {name}" for name in kept]
    anew = without(begin, stream.accumulators)
    return [
        *queue.first(),
        *queue.number(),
        *queue.handed_on(),
        *begin,
        "ended_place = queue_place",
        *keep,
        *stream.first,
        "while True:",
        f"    has_ended = not ({stream.more})",
        "    if has_ended:",
        *indented(indented([*keep, *stream.left, "ended_place = queue_place", *queue.advance()])),
        *indented(indented([*queue.number(), "if number < 0:", "    break"])),
        *indented(indented([*queue.handed_on(), *anew])),
        *indented(stream.tile),
        "    if has_ended:",
        *indented(indented([*end, *needed(begin, stream.accumulators)])),
        *indented(stream.rest),
        *stream.last,
        *end,
    ]
