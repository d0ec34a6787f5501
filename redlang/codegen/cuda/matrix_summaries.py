"""Tiles told apart by numbers that arrays hold: which have elements that take part, and which only.

    doc[b, m] == doc[b, n]

No index bounds follow from such a test, but the least and the greatest number of a tile's rows and
of its columns say enough: disjoint ranges mean that nothing takes part, equal constants that all
does. A block finds out once, before its roles part: a byte for each tile of the loop, in shared
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import Address
from redlang.codegen.cuda.matrix_frame import SUMMARY, MatrixFrame
from redlang.codegen.cuda.matrix_producer import indented
from redlang.ir.loops import Kernel, Loop
from redlang.ir.program import Apply, Cast, Expr, Index, Load, Ref
from redlang.ir.types import BOOL, I32, I64, Type
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import MatrixPlan

CAPACITY = 4096
"""Tiles that a block remembers; those beyond count as partly absent."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A test whose answer for whole tiles a block remembers.

    Attributes:
        rows: The number that rows have.
        columns: The number that columns have.
        axis: The loop's axis.
    """

    rows: Load
    columns: Load
    axis: str


@dataclass(slots=True)
class Summaries:
    """The tests of a kernel that are answered for whole tiles."""

    frame: MatrixFrame
    kernel: Kernel
    plan: MatrixPlan
    found: list[Summary] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    prepared: bool = False

    def of(self, test: Apply, any_element: bool) -> Expr | None:
        """Return what is remembered of a test for the current tile; None if nothing is."""
        summary = self._summary(test) if self.plan.unit == "wgmma" else None
        if summary is None:
            return None
        if summary not in self.found:
            if self.prepared:
                return None
            self.found.append(summary)
        kind = "some" if any_element else "all"
        name = f"{SUMMARY}.{self.found.index(summary)}.{kind}.{summary.axis}"
        return Ref(name, Type(BOOL))

    def _summary(self, test: Apply) -> Summary | None:
        if test.op != "eq":
            return None
        sides = [_plain(argument) for argument in test.arguments]
        loops = {s.axis for s in self.kernel.body if isinstance(s, Loop)}
        rows = {axis for axis, _ in self.plan.rows}
        single = {grid.axis for grid in self.kernel.grid if grid.tile == 1}
        for own, other in (sides, sides[::-1]):
            if own is None or other is None or not self._is_whole(own) or not self._is_whole(other):
                continue
            along, across = set(own.type.axes) - single, set(other.type.axes) - single
            plain = all(isinstance(part, Index) for part in other.subscripts)
            if not plain or len(along) != 1 or len(across) != 1:
                continue
            if along <= rows and across <= loops and self._is_run(own, min(along), single):
                return Summary(own, other, next(iter(across)))
        return None

    def _is_whole(self, load: Load) -> bool:
        dtype = self.frame.memories[load.array].dtype
        return not any(load.guarded) and dtype in (I32, I64)

    def _is_run(self, load: Load, row: str, single: set[str]) -> bool:
        """Say whether rows read a run of elements no longer than they are many."""
        along = [part for part in load.subscripts if row in part.type.axes]
        others = [part for part in load.subscripts if row not in part.type.axes]
        return (
            len(along) == 1
            and _steps_by_one(along[0], row)
            and all(isinstance(part, Index) and part.axis in single for part in others)
        )

    def prepare(self, interval: Callable[[Expr], tuple[str, str]]) -> None:
        """Say which elements the rows of a unit read, in the scope of the unit.

        Args:
            interval: Gives text of the least and the greatest value of an index over the unit.
        """
        self.prepared = True
        for summary in self.found:
            row = self._row(summary)
            (part,) = [p for p in summary.rows.subscripts if row in p.type.axes]
            least, greatest = interval(part)
            self.rows.append((least, f"{greatest} - {least} + 1"))

    def _row(self, summary: Summary) -> str:
        (row,) = [axis for axis, _ in self.plan.rows if axis in summary.rows.type.axes]
        return row

    @property
    def bytes(self) -> int:
        """Return the shared memory that the answers take."""
        return CAPACITY * len(self.found)

    def places(self, start: int) -> list[str]:
        """Return lines that say where the answers are."""
        return [
            f"{SUMMARY}_{number} = shared + {start + number * CAPACITY}"
            for number in range(len(self.found))
        ]

    def lines(self, unit: Sequence[str], ends: dict[str, tuple[str, str]], warps: int) -> list[str]:
        """Return lines with which all warps of a block fill the answers in.

        Args:
            unit: Lines that say which unit is the block's.
            ends: First index and end of each loop, by its axis.
            warps: How many warps there are.
        """
        if not self.found:
            return []
        lines = ["number = i32(cuda.blockIdx.x)", *unit]
        for number, summary in enumerate(self.found):
            lines += self._one(number, summary, ends[summary.axis], warps)
        return lines

    def _one(self, number: int, summary: Summary, ends: tuple[str, str], warps: int) -> list[str]:
        axis, frame = summary.axis, self.frame
        row = self._row(summary)
        tile = self.plan.width(axis)
        size = frame.parameter(Extent(axis))
        start, stop = ends
        text = self._extremes(summary.rows, row, self.plan.width(row), *self.rows[number])
        at = f"{SUMMARY}_tile"
        place = f"i64({at}) * {tile}"
        held = f"t.smaller(i64({tile}), {size} - {place})"
        return [
            f"row_least, row_greatest = {text}",
            f"{at} = i32({start} // {tile} + (i32(cuda.threadIdx.x) >> i32(5)))",
            f"while {place} < {stop} and {at} < i32({CAPACITY}):",
            *indented(
                [
                    f"least, greatest = {self._extremes(summary.columns, axis, tile, place, held)}",
                    f"w.put_answer({SUMMARY}_{number} + {at}, row_least, row_greatest, "
                    "least, greatest)",
                    f"{at} = i32({at} + i32({warps}))",
                ]
            ),
        ]

    def _extremes(self, load: Load, axis: str, tile: int, first: str, count: str) -> str:
        """Return text of the least and the greatest element of a part of an array."""
        frame = self.frame
        dtype = frame.memories[load.array].dtype
        make = frame.module.declare("extremes", f'w.extremes("{dtype}", {-(-tile // WARP)})')
        terms = [frame.parameter(Address(load.array))]
        step = "0"
        for name, part in zip(frame.memories[load.array].axes, load.subscripts, strict=True):
            stride = f"{self._step(load.array, name)} * {dtype.bytes}"
            if axis in part.type.axes:
                terms.append(f"({first}) * {stride}")
                step = stride
            else:
                assert isinstance(part, Index)
                terms.append(f"{frame.block_first(part.axis)} * {stride}")
        return f"{make}({' + '.join(terms)}, {step}, i32({count}))"

    def _step(self, array: str, axis: str) -> str:
        known = self.frame.classes.arrays[array].strides.get(axis)
        return f"i64({known})" if known is not None else self.frame.parameter(Stride(array, axis))


def _steps_by_one(expr: Expr, axis: str) -> bool:
    """Say whether an index moves by at most one where the index of `axis` does."""
    match expr:
        case Index():
            return expr.axis == axis
        case Cast(operand=operand, explicit=False):
            return _steps_by_one(operand, axis)
        case Apply(op="minimum" | "maximum" | "add" | "sub", arguments=(a, b)):
            moving = [side for side in (a, b) if side.type.axes]
            return len(moving) == 1 and _steps_by_one(moving[0], axis)
        case _:
            return False


def _plain(expr: Expr) -> Load | None:
    """Return the element that an expression is, if it is one of an array read at plain indices."""
    while isinstance(expr, Cast) and not expr.explicit:
        expr = expr.operand
    return expr if isinstance(expr, Load) else None
