"""Loops whose loads run ahead: tiles on their way to shared memory while others are computed with.

Before the loop a thread starts the copies of its first few tiles, in each turn those of one more.
Copies of a turn are a group, empty at the end of the axis, so that waiting for all but the last
few groups always waits for this turn's tile. A turn's copies go where the turn before has read:

    start tiles 0 .. ahead - 1
    each turn: start tile turn + ahead; wait for all but `ahead` groups; read; compute
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.frame import Frame, Value
from redlang.ir import walk
from redlang.ir.loops import Branch, Loop, Statement
from redlang.ir.program import Load
from redlang.schedule import tidy

SMALLEST = 4
"""Bytes of the smallest piece that is copied without registers."""


@dataclass(frozen=True, slots=True)
class Source:
    """An array whose tiles are copied ahead.

    Attributes:
        load: What reads it.
        place: The variable with the offset of the thread's pieces in the first slot.
        piece, stride: Bytes of a piece, and between the pieces of a thread.
    """

    load: Load
    place: str
    piece: int
    stride: int


class Slots:
    """Room in shared memory for the tiles of some loads, once or several times."""

    def __init__(
        self,
        frame: Frame,
        accesses: Accesses,
        axes: Collection[str],
        body: Sequence[Statement],
        count: int,
    ) -> None:
        """Reserve `count` slots for what statements load along all of some axes."""
        self.frame = frame
        self.accesses = accesses
        threads = frame.plan.threads
        self.slot_bytes = 0
        first = frame.shared_bytes = -(-frame.shared_bytes // 16) * 16
        self.sources: list[Source] = []
        for load in _loads(body):
            if not (set(axes) <= set(load.type.axes) and accesses.is_plain(load)):
                continue
            pieces, piece = accesses.pieces(load)
            if piece < SMALLEST:
                continue
            place = frame.module.names.fresh(f"{load.array}_slot")
            own = f"i64({first + self.slot_bytes}) + i64(cuda.threadIdx.x) * {piece}"
            frame.line(f"{place} = {own}")
            self.sources.append(Source(load, place, piece, piece * threads))
            self.slot_bytes += pieces * piece * threads
        frame.shared_bytes += self.slot_bytes * count

    def fetch(self, slot: str, lead: tuple[str, str] | None) -> None:
        """Start the copies of one tile of each load to a slot: a group."""
        frame = self.frame
        for source in self.sources:
            access, arguments = self.accesses.fetch(source.load, lead)
            name = f"fetch_{source.load.array}"
            past = ", past_l1=True" if self.accesses.lies_together(source.load) else ""
            make = frame.module.declare(name, f"t.fetch({access}, {source.stride}{past})")
            frame.line(f"{make}({source.place} + {slot}, {', '.join(arguments)})")
        frame.line("t.pieces_commit()")

    def wait(self, pending: int) -> None:
        """Wait for all groups but the last few."""
        wait = self.frame.module.declare("arrived", f"t.pieces_arrived({pending})")
        self.frame.line(f"{wait}()")

    def read(self, source: Source, slot: str, lead: tuple[str, str] | None) -> Value:
        """Read the tile of a load from a slot."""
        frame = self.frame
        access, _ = self.accesses.fetch(source.load, lead)
        make = frame.module.declare(
            f"staged_{source.load.array}",
            f"t.staged({access}, {source.stride}{self.accesses.f8(source.load)})",
        )
        name = frame.module.names.fresh(source.load.array)
        frame.line(f"{name} = {make}({source.place} + {slot})")
        return Value(name, *self.accesses.tile(source.load))


def _loads(body: Sequence[Statement]) -> list[Load]:
    """Return the loads of statements, each once; those of inner loops and branches are theirs."""
    found: dict[Load, None] = {}
    for statement in body:
        if not isinstance(statement, Loop | Branch):
            for node in (n for e in tidy.expressions(statement) for n in walk.nodes(e)):
                if isinstance(node, Load):
                    found[node] = None
    return list(found)


class Ahead:
    """The ring of slots of one loop."""

    def __init__(
        self, frame: Frame, accesses: Accesses, axis: str, step: str, body: Sequence[Statement]
    ) -> None:
        """Reserve shared memory for what `body` loads along `axis`; `step` is a turn's advance."""
        self.frame = frame
        self.axis = axis
        self.step = step
        self.count = frame.plan.ahead
        self.slots = Slots(frame, accesses, [axis], body, self.count + 1)
        self.slot, self.before = (frame.module.names.fresh(n) for n in ("slot", "slot_before"))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is copied."""
        return not self.slots.sources

    def begin(self) -> None:
        """Start the copies of the first tiles; the loop's first index is set."""
        frame = self.frame
        with frame.scope([self.axis]) as scope:
            for number in range(self.count):
                lead = f"{number} * {self.step}" if number else "i64(0)"
                self.slots.fetch(f"i64({number * self.slots.slot_bytes})", (self.axis, lead))
        for line in scope.lines:
            frame.line(line)
        frame.line(f"{self.slot} = i64(0)")
        frame.line(f"{self.before} = i64({self.count * self.slots.slot_bytes})")

    def turn(self) -> None:
        """Start the copies of one more tile, wait for this turn's, and read it."""
        self.slots.fetch(self.before, (self.axis, f"{self.count} * {self.step}"))
        self.slots.wait(self.count)
        known = self.frame.scopes[-1].known
        for source in self.slots.sources:
            known[source.load] = self.slots.read(source, self.slot, (self.axis, "i64(0)"))

    def next(self) -> None:
        """Go on to the next slot."""
        size = self.slots.slot_bytes
        last = self.count * size
        self.frame.line(f"{self.before} = {self.slot}")
        self.frame.line(
            f"{self.slot} = select({self.slot} == {last}, i64(0), {self.slot} + {size})"
        )
