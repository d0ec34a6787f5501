"""Which units a block of a persistent kernel runs: dealt out in turn, or fetched from a queue.

Units of unequal length are fetched: a counter in global memory numbers them, heavy ones first, and
each block takes the next one when its producer is done with the last. The producer runs ahead of
the consumers, so what it knows of a unit waits in one of a few *places* of shared memory, guarded
by barriers as tiles are: its number (below 0: there are no more), where its tiles begin, and where
its loops do. The counter wraps to 0 with the launch's last unit, so that no one needs to reset it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redlang.codegen.cuda.matrix_producer import indented

PLACES = 3
"""A unit that ends, the one that has begun, and the next."""
_NUMBER = 16
_WORD = 8


@dataclass(frozen=True, slots=True)
class Queue:
    """The units that a block has fetched.

    Attributes:
        start: Offset of the places in shared memory, each with its barriers first.
        counter: The variable that holds the counter's address.
        values: The variables (i64) that the producer hands on with a unit's number.
    """

    start: int
    counter: str
    values: tuple[str, ...] = ()

    @property
    def stride(self) -> int:
        """Return the bytes of a place."""
        return _NUMBER + _WORD * (1 + len(self.values))

    @property
    def bytes(self) -> int:
        """Return the bytes of all places."""
        return PLACES * self.stride

    def begin(self, readers: int) -> list[str]:
        """Return lines with which one thread makes the barriers, for so many reading warps."""
        lines = []
        for place in range(PLACES):
            full = self.start + self.stride * place
            lines.append(f"w.barrier_begin(shared + {full}, 1)")
            lines.append(f"w.barrier_begin(shared + {full + _WORD}, {readers})")
        return lines

    def produced(self, unit: Sequence[str], scan: Sequence[str], lines: Sequence[str]) -> list[str]:
        """Return the producer's loop over units.

        Args:
            unit: What says which unit it is.
            scan: What its warp finds out about the unit's tiles; else the producer is one thread.
            lines: What follows.
        """
        put = [
            f"w.put_number({self._at(_NUMBER + _WORD * (1 + place))}, {value})"
            for place, value in enumerate(self.values)
        ]
        put = [
            f"w.put_number({self._at(_NUMBER)}, number)",
            *put,
            f"w.barrier_arrive({self._at(0)}, i32(1))",
        ]
        end = [
            f"w.put_number({self._at(_NUMBER)}, -1)",
            f"w.barrier_arrive({self._at(0)}, i32(1))",
        ]
        following, late = "following", ["if following < i32(0):", f"    {self.fetch()}"]
        if scan:
            following = "w.warp_uniform(following)"
            put, lines, end = (["if lane == i32(0):", *indented(x)] for x in (put, lines, end))
            late = ["if lane == i32(0):", *indented(late)]
        return [
            *self.first(),
            "number = i32(cuda.blockIdx.x)",
            "while number < units:",
            *indented(
                [
                    "following = i32(-1)",
                    *unit,
                    self._wait_for_room(),
                    *scan,
                    *put,
                    *self.advance(),
                    *lines,
                    *late,
                    f"number = i32(i32(cuda.gridDim.x) + {following})",
                ]
            ),
            self._wait_for_room(),
            *end,
        ]

    def fetch(self) -> str:
        """Return the line that asks for the next unit's number, which no one waits for here."""
        return f"following = w.fetched({self.counter}, i32(units - i32(1)))"

    def consumed(self, lines: Sequence[str], lead: str) -> list[str]:
        """Return another role's loop over units; `lead` is not 0 in one lane of a warp."""
        body = [
            *self.handed_on(),
            *lines,
            self.release(lead),
            *self.advance(),
            *self.number(),
        ]
        return [*self.first(), *self.number(), "while number >= i32(0):", *indented(body)]

    def first(self) -> list[str]:
        """Return lines that begin at the first place."""
        return ["queue_place = i32(0)", "queue_parity = i32(0)"]

    def number(self) -> list[str]:
        """Return lines that wait for a unit and read its number."""
        return [
            f"w.barrier_wait({self._at(0)}, queue_parity)",
            f"number = w.got_number({self._at(_NUMBER)})",
        ]

    def handed_on(self, place: str = "queue_place") -> list[str]:
        """Return lines that read what else a place holds."""
        return [
            f"{value} = w.got_number({self._at(_NUMBER + _WORD * (1 + number), place)})"
            for number, value in enumerate(self.values)
        ]

    def release(self, lead: str, place: str = "queue_place") -> str:
        """Return the line with which a warp gives a place back."""
        return f"w.barrier_arrive({self._at(_WORD, place)}, {lead})"

    def advance(self) -> list[str]:
        """Return lines that go to the next place."""
        return [
            "queue_place = i32(queue_place + i32(1))",
            f"if queue_place == i32({PLACES}):",
            "    queue_place = i32(0)",
            "    queue_parity = i32(queue_parity ^ i32(1))",
        ]

    def _wait_for_room(self) -> str:
        return f"w.barrier_wait({self._at(_WORD)}, queue_parity ^ i32(1))"

    def _at(self, offset: int, place: str = "queue_place") -> str:
        return f"shared + {self.start + offset} + {place} * {self.stride}"
