"""In which order units come where rows and columns are cut: what runs together shares operands.

Units go through panels of a few tiles of rows, column by column, so that the blocks at work read
few rows and few columns between them.
"""

from __future__ import annotations

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.ir.loops import Kernel
from redlang.schedule.matrices import MatrixPlan

PANEL = 8
"""Tiles of rows in a panel."""


def paneled(frame: MatrixFrame, kernel: Kernel, plan: MatrixPlan) -> tuple[str, ...]:
    """Write the first row and column of a unit's tile; return the axes that are settled.

    `unit` becomes the number over the other axes. Nothing is written where columns are not cut.
    """
    tiles = {grid.axis: grid.tile for grid in kernel.grid}
    cut = [axis for axis, _ in plan.columns if axis in tiles]
    row = plan.rows[-1][0]
    if len(cut) != 1 or row not in tiles:
        return ()
    (column,) = cut
    for name, axis in (("tall", row), ("wide", column)):
        size = frame.parameter(Extent(axis))
        frame.line(f"{name} = i32(t.tiles({size}, {tiles[axis]}))")
    frame.line("unit, rest = t.divided(unit, i64(tall) * i64(wide))")
    frame.line(f"part, rest = t.divided(rest, i64(wide) * {PANEL})")
    frame.line(f"held = t.smaller(i64({PANEL}), i64(tall) - i64(part) * {PANEL})")
    frame.line("tile, rest = t.divided(rest, held)")
    frame.line(f"{frame.block_first(column)} = i64(tile) * {tiles[column]}")
    frame.line(f"{frame.block_first(row)} = (i64(part) * {PANEL} + i64(rest)) * {tiles[row]}")
    return row, column
