"""Which units a block of a persistent kernel runs: dealt out in turn, or fetched from a queue.

Units of unequal length are fetched: a counter in global memory numbers them, heavy ones first, and
each block takes the next one when its producer is done with the last. The producer runs ahead of
the consumers, so a number waits in one of two places of shared memory, guarded by barriers as tiles
are. The counter wraps to 0 with the launch's last unit, so that no one needs to reset it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redlang.codegen.cuda.matrix_producer import indented

PLACES = 2
QUEUE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Queue:
    """The numbers of units that a block has fetched.

    Attributes:
        start: Offset of the places in shared memory; their barriers follow.
        counter: The variable that holds the counter's address.
    """

    start: int
    counter: str

    def begin(self, readers: int) -> list[str]:
        """Return lines with which one thread makes the barriers, for so many reading warps."""
        lines = []
        for place in range(PLACES):
            lines.append(f"w.barrier_begin(shared + {self._full + 8 * place}, 1)")
            lines.append(f"w.barrier_begin(shared + {self._empty + 8 * place}, {readers})")
        return lines

    def produced(self, lines: Sequence[str]) -> list[str]:
        """Return the producer's loop over units."""
        return [
            *self._start(),
            "while number < units:",
            *indented(
                [
                    "following = i32(i32(cuda.gridDim.x) + w.fetched("
                    f"{self.counter}, i32(units - i32(1))))",
                    f"w.barrier_wait({self._at(self._empty)}, queue_parity ^ i32(1))",
                    f"w.put_number({self._at(self.start)}, following)",
                    f"w.barrier_arrive({self._at(self._full)}, i32(1))",
                    *self._advance(),
                    *lines,
                    "number = following",
                ]
            ),
        ]

    def consumed(self, lines: Sequence[str], lead: str) -> list[str]:
        """Return another role's loop over units; `lead` is not 0 in one lane of a warp."""
        return [
            *self._start(),
            "while number < units:",
            *indented(
                [
                    *lines,
                    f"w.barrier_wait({self._at(self._full)}, queue_parity)",
                    f"number = w.got_number({self._at(self.start)})",
                    f"w.barrier_arrive({self._at(self._empty)}, {lead})",
                    *self._advance(),
                ]
            ),
        ]

    @property
    def _full(self) -> int:
        return self.start + 16

    @property
    def _empty(self) -> int:
        return self._full + 8 * PLACES

    def _at(self, offset: int) -> str:
        return f"shared + {offset} + queue_place * 8"

    def _start(self) -> list[str]:
        return ["queue_place = i32(0)", "queue_parity = i32(0)", "number = i32(cuda.blockIdx.x)"]

    def _advance(self) -> list[str]:
        return [
            "queue_parity = i32(queue_parity ^ queue_place)",
            "queue_place = i32(queue_place ^ i32(1))",
        ]
