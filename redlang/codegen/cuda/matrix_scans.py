"""Which tiles of a loop count, found out ahead: a bit for each tile and question.

Whether a tile has elements that take part, and whether it has others, does not always follow from
the ends of a loop: middles are empty (`(n > m - 1024) | (n < 4)`), and arrays say what belongs
together. A warp asks for 32 tiles at once, a lane each, before anyone needs the answers, and leaves
them in shared memory. Whoever goes through the loop steps from one set bit to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redlang.codegen.cuda.matrix_frame import KNOWN, MatrixFrame
from redlang.codegen.cuda.matrix_producer import indented
from redlang.ir.program import Expr, Ref
from redlang.ir.types import BOOL, Type
from redlang.schedule.fragments import WARP

CAPACITY = 1024
"""Tiles of a loop that there are bits for; those beyond are looked at, and tested."""
_BYTES = CAPACITY // 8
_WORDS = CAPACITY // WARP


@dataclass(slots=True)
class Scan:
    """What is asked of the tiles of all loops.

    Attributes:
        frame: The kernel's frame.
        asked: Each question with the loop's axis; a test of the block's tile, true where bits are
            set.
    """

    frame: MatrixFrame
    asked: list[tuple[str, Expr]] = field(default_factory=list)

    def ask(self, axis: str, test: Expr) -> Ref:
        """Return the name of a test's answer for the current tile of a loop."""
        if (axis, test) not in self.asked:
            self.asked.append((axis, test))
        return Ref(f"{KNOWN}.{self.asked.index((axis, test))}.{axis}", Type(BOOL))

    @property
    def bytes(self) -> int:
        """Return the shared memory that the answers for one unit take."""
        return _BYTES * len(self.asked)

    def following(self, answer: Ref, first: str, stop: str, *, alone: bool) -> str:
        """Return the line that goes on to a tile whose bit is set, or beyond the end.

        Args:
            answer: What `ask` returned.
            first: The variable of the tile's first index.
            stop: The end of the loop.
            alone: Whether one thread asks, not a warp.
        """
        _, number, axis = answer.name.split(".")
        frame = self.frame
        tile = frame.spread(axis).extent
        text = f"w.next_tile({CAPACITY}, alone=True)" if alone else f"w.next_tile({CAPACITY})"
        make = frame.module.declare("next_tile", text)
        place = place_of(int(number))
        end = f"i32(t.tiles({stop}, {tile}))"
        return f"{first} = i64({make}({place}, i32({first} // {tile}), {end})) * {tile}"

    def lines(
        self,
        axis: str,
        ends: tuple[str, str],
        column_ends: list[str],
        value: Callable[[Expr], str],
        warp: str,
        warps: int,
    ) -> list[str]:
        """Return lines with which warps answer what is asked of a loop.

        Args:
            axis: The loop's.
            ends: Its first index and its end.
            column_ends: Lines that read the ends of a tile's numbers.
            value: Returns text of a test, and writes what it needs.
            warp: Which of the warps one is.
            warps: How many there are.
        """
        asked = [(n, test) for n, (own, test) in enumerate(self.asked) if own == axis]
        if not asked:
            return []
        frame = self.frame
        tile, first = frame.spread(axis).extent, frame.first(axis)
        start, stop = ends
        with frame.scope([axis]) as scope:
            for line in column_ends:
                frame.line(line)
            for number, test in asked:
                place = f"{place_of(number)} + u32(scan * i32(4))"
                frame.line(f"w.put_word({place}, i32({value(test)}))")
        return [
            f"scan = i32((i32({start} // {tile}) >> i32(5)) + {warp})",
            f"while i64(scan) * {WARP * tile} < {stop} and scan < i32({_WORDS}):",
            f"    {first} = (i64(scan) * {WARP} + i64(i32(cuda.threadIdx.x) & i32(31))) * {tile}",
            *indented(scope.lines),
            f"    scan = i32(scan + i32({warps}))",
        ]


def place_of(number: int) -> str:
    """Return text of where the bits of a question begin."""
    return f"known + {number * _BYTES}"
