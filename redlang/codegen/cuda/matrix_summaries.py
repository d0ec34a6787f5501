"""Tiles of arrays of numbers summed up: the least and the greatest of each, in memory.

    doc[b, m] == doc[b, n]        place[b, n] <= place[b, m]

No index bounds follow from such tests, but the numbers that a tile's rows and its columns have lie
between ends, and interval analysis goes on from there: ranges that do not meet leave nothing to
see, equal constants leave nothing out. The ends of every tile are a small result of their own,
which a first kernel stores once a launch, whatever the heads and however often a tile is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.kernel_text import Address
from redlang.codegen.cuda.matrix_checks import step
from redlang.codegen.cuda.matrix_frame import RANGE, MatrixFrame
from redlang.codegen.cuda.matrix_producer import indented
from redlang.codegen.cuda.matrix_text import MatrixText, with_words
from redlang.ir.loops import Kernel, Loop, Workspace
from redlang.ir.program import Apply, Cast, Expr, Index, Load, Ref
from redlang.ir.types import I64, U64, Type
from redlang.schedule.bounds import Interval
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import MatrixPlan

WARPS = 4
"""Warps of a block of the first kernel, a tile each."""
_ENDS = ("least", "greatest")


@dataclass(frozen=True, slots=True)
class Summary:
    """The ends of each tile of an array.

    Attributes:
        array: The array.
        axis: The axis that is cut into tiles.
        tile: Its elements a tile.
    """

    array: str
    axis: str
    tile: int

    def space(self, end: str) -> str:
        """Return the name of the workspace that holds an end."""
        return f"{self.array}.{self.axis}.{self.tile}.{end}"


@dataclass(frozen=True, slots=True)
class Use:
    """Elements that a test reads.

    Attributes:
        summary: What is known of them.
        load: The elements.
        along: The axis of rows or columns along which they lie.
        looped: Whether that is the loop's axis.
    """

    summary: Summary
    load: Load
    along: str
    looped: bool

    @property
    def subscript(self) -> Expr:
        """Return the index that moves with the axis."""
        (part,) = (p for p in self.load.subscripts if self.along in p.type.axes)
        return part


@dataclass(slots=True)
class Summaries:
    """What a kernel knows of its arrays' tiles."""

    frame: MatrixFrame
    kernel: Kernel
    plan: MatrixPlan
    uses: list[Use] = field(default_factory=list)

    def of(self, expr: Expr) -> Interval | None:
        """Return the ends of an element over the current ranges; None if they are not stored."""
        use = self._use(expr) if isinstance(expr, Load) and self.plan.unit == "wgmma" else None
        if use is None:
            return None
        if use not in self.uses:
            self.uses.append(use)
        number = self.uses.index(use)
        least, greatest = (Ref(f"{RANGE}.{number}.{end}", Type(I64)) for end in _ENDS)
        return least, greatest

    def _use(self, load: Load) -> Use | None:
        dtype = self.frame.memories[load.array].dtype
        if any(load.guarded) or dtype.kind not in ("int", "uint") or dtype is U64:
            return None
        loops = {s.axis for s in self.kernel.body if isinstance(s, Loop)}
        rows = {axis for axis, _ in self.plan.rows}
        single = {grid.axis for grid in self.kernel.grid if grid.tile == 1}
        moving = set(load.type.axes) - single
        if len(moving) != 1 or not moving <= loops | rows:
            return None
        (along,) = moving
        parts = [part for part in load.subscripts if along in part.type.axes]
        others = [part for part in load.subscripts if along not in part.type.axes]
        if len(parts) != 1 or any(
            not isinstance(part, Index) or part.axis not in single for part in others
        ):
            return None
        looped = along in loops
        # Columns are whole tiles; rows may be a run of elements no longer than they are many.
        if not (isinstance(parts[0], Index) if looped else _steps_by_one(parts[0], along)):
            return None
        axis = self.frame.memories[load.array].axes[load.subscripts.index(parts[0])]
        return Use(Summary(load.array, axis, self.plan.width(along)), load, along, looped)

    def of_rows(self, interval: Callable[[Expr], tuple[str, str]]) -> list[str]:
        """Return lines that read the ends of the rows of a unit.

        Args:
            interval: Gives text of the least and the greatest value of an index over the unit.
        """
        return [
            self._read(number, use, *interval(use.subscript))
            for number, use in enumerate(self.uses)
            if not use.looped
        ]

    def of_columns(self, axis: str, first: str) -> list[str]:
        """Return lines that read the ends of a tile of a loop.

        Args:
            axis: The loop's.
            first: The variable of its first index, which may lie beyond the end.
        """
        return [
            self._read(number, use, first, first)
            for number, use in enumerate(self.uses)
            if use.along == axis
        ]

    def _read(self, number: int, use: Use, first: str, last: str) -> str:
        frame, summary = self.frame, use.summary
        size = frame.parameter(Extent(summary.axis))
        row = "i64(0)"
        for part in use.load.subscripts:
            if part is not use.subscript:
                assert isinstance(part, Index)
                extent = frame.parameter(Extent(self._axis(use.load, part)))
                row = f"({row} * {extent} + {frame.block_first(part.axis)})"
        names = ", ".join(f"range_{number}_{end}" for end in _ENDS)
        places = [f"t.smaller({at}, {size} - 1) // {summary.tile}" for at in (first, last)]
        ends = [
            f"{frame.parameter(Address(summary.space(end)))} + {row} * "
            f"t.tiles({size}, {summary.tile}) * 8"
            for end in _ENDS
        ]
        return f"{names} = w.range_of({', '.join([*ends, *places])})"

    def _axis(self, load: Load, part: Expr) -> str:
        return self.frame.memories[load.array].axes[load.subscripts.index(part)]

    # What is stored ---------------------------------------------------------------------------

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return what is stored."""
        return tuple(dict.fromkeys(use.summary for use in self.uses))

    def spaces(self) -> tuple[Workspace, ...]:
        """Return the workspaces that hold it."""
        return tuple(
            Workspace(s.space(end), self._dims(s), I64, ((s.axis, s.tile),))
            for s in self.summaries
            for end in _ENDS
        )

    def _dims(self, summary: Summary) -> tuple[str, ...]:
        """Return an array's axes, the one that is cut last."""
        axes = self.frame.memories[summary.array].axes
        return (*(axis for axis in axes if axis != summary.axis), summary.axis)

    def storing(self) -> MatrixText | None:
        """Return the kernel that stores it; None where nothing is."""
        if not self.summaries:
            return None
        frame = MatrixFrame(self.frame.loops, self.kernel, self.plan, self.frame.classes)
        lines = ["lane = i32(i32(cuda.threadIdx.x) & i32(31))"]
        for summary in self.summaries:
            lines += self._stored(frame, summary)
        entry = f"{frame.entry}_ranges"
        names = ", ".join(frame.parameters.values())
        first = self.summaries[0]
        dims = self._dims(first)
        return MatrixText(
            entry=entry,
            source=with_words(frame.module.text([f"def {entry}({names}):", *indented(lines)])),
            parameters=tuple(frame.parameters),
            threads=WARPS * WARP,
            min_blocks=1,
            shared_bytes=0,
            grid=tuple((axis, first.tile if axis == first.axis else 1) for axis in dims),
            path="ranges",
            units=WARPS,
        )

    def _stored(self, frame: MatrixFrame, summary: Summary) -> list[str]:
        """Return lines with which the warps of a launch store the ends of an array's tiles."""
        *others, axis = self._dims(summary)
        dtype = frame.memories[summary.array].dtype
        size = frame.parameter(Extent(axis))
        sizes = [f"t.tiles({size}, {summary.tile})"]
        sizes += [frame.parameter(Extent(other)) for other in reversed(others)]
        make = frame.module.declare(
            "extremes", f'w.extremes("{dtype}", {-(-summary.tile // WARP)})'
        )
        terms = [frame.parameter(Address(summary.array))]
        divided = []
        for name, count in zip([axis, *reversed(others)], sizes, strict=True):
            divided.append(f"rest, {name}_place = t.divided(rest, {count})")
            scale = summary.tile if name == axis else 1
            stride = f"{step(frame, summary.array, name)} * {dtype.bytes * scale}"
            terms.append(f"i64({name}_place) * {stride}")
        held = f"t.smaller(i64({summary.tile}), {size} - i64({axis}_place) * {summary.tile})"
        each = f"{step(frame, summary.array, axis)} * {dtype.bytes}"
        stores = [
            f"w.put_end({frame.parameter(Address(summary.space(end)))} + i64(unit) * 8, {end}, "
            "i32(lane == i32(0)))"
            for end in _ENDS
        ]
        return [
            f"unit = i32(i32(cuda.blockIdx.x) * {WARPS} + (i32(cuda.threadIdx.x) >> i32(5)))",
            f"while i64(unit) < {' * '.join(sizes)}:",
            *indented(
                [
                    "rest = unit",
                    *divided,
                    f"least, greatest = {make}({' + '.join(terms)}, {each}, i32({held}))",
                    *stores,
                    f"unit = i32(unit + i32(cuda.gridDim.x) * {WARPS})",
                ]
            ),
        ]


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
