"""The frame of a matrix kernel: ranges of a warp's rows, tensor maps, and which ends are ragged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from redlang.codegen.cuda.frame import Frame
from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_text import MatrixParameter, TensorMap, unsuited
from redlang.ir.loops import Kernel, Loops
from redlang.ir.program import Ref
from redlang.schedule.matrices import MatrixPlan

_NAMES = {
    *("w", "shared", "unit", "number", "units", "round_start", "place", "group", "row", "leads"),
    "leads_warp",
    *("lead", "checker", "own_turn", "next_turn", "graded", "others", "section", "part", "rest"),
    *(
        "held",
        "tile",
        "whole",
        "sections",
        "following",
        "queue_place",
        "queue_parity",
        "ended_place",
        "stage",
        "thread",
        "lane",
        "ahead",
        "slot",
        "turn",
        "scratch",
        "source",
        "warp",
    ),
    *("segment", "share", "before", "tall", "wide"),
    *("known", "scan", "least", "greatest"),
}
"""What the kernel's text calls things of its own."""


RANGE = "#range"
"""What names of the ends of a tile's numbers begin with; their variables are a scan's."""
KNOWN = "#known"
"""What names of answers about whole tiles begin with, which end in the loop's axis."""


class MatrixFrame(Frame):
    """A frame whose unit is a warp: 16 rows of the block's row tile, all of its columns."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> None:
        super().__init__(loops, kernel, plan.warp(), classes)
        self.matrix = plan
        self.module.names.reserve(_NAMES)
        self.order = (*self.order, *(a for a in _segment(kernel) if a not in self.order))

    def parameter(self, parameter: MatrixParameter) -> str:
        """Return the variable of a kernel parameter."""
        if isinstance(parameter, TensorMap):
            variables = cast("dict[MatrixParameter, str]", self.parameters)
            if parameter not in variables:
                variables[parameter] = self.module.names.fresh(f"{parameter.array}_map")
            return variables[parameter]
        return super().parameter(parameter)

    def tile_axes(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Return the axes along which a thread holds several elements.

        Raises:
            UnsuitedError: Two of them lie along the same lanes, which hold few of their pairs.
        """
        found = super().tile_axes(axes)
        columns = [axis for axis in found if axis in dict(self.matrix.columns)]
        if len(columns) > 1:
            raise unsuited(f"elements along {' and '.join(columns)} at once")
        return found

    def ref_depth(self, ref: Ref) -> int:
        """Return the outermost scope in which a name has the value that it has here."""
        kind, _, rest = ref.name.partition(".")
        if kind == RANGE:
            return self.depth
        if kind == KNOWN:
            return self.axis_depth(rest.split(".")[-1])
        return super().ref_depth(ref)

    def block_first(self, axis: str) -> str:
        """Return the first index of an axis in the block's tile, which for rows is not the warp's.

        The variable is one of the preamble, which all roles share.
        """
        return self.module.names.of("block", f"{axis}_block")

    def is_whole(self, axis: str) -> bool:
        """Say whether the block's tile of an axis always lies inside the axis."""
        if axis in self.slots or self.spread(axis).extent == 1:
            return axis in self.slots or self.matrix.width(axis) == 1
        return self.classes.multiple(axis) % self.matrix.width(axis) == 0


def _segment(kernel: Kernel) -> tuple[str, ...]:
    return () if kernel.segment is None else (kernel.segment.index,)
