"""Tiles of arrays on their way into shared memory, by all threads of a block."""

from __future__ import annotations

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.matrix_checks import address, step
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_memory import Ring
from redlang.codegen.cuda.matrix_text import tile_text, unsuited
from redlang.schedule.matrices import MatrixPlan


def copy_lines(
    frame: MatrixFrame, ring: Ring, plan: MatrixPlan, target: str, loop_first: str | None = None
) -> list[str]:
    """Return lines that start the copies of one tile.

    Args:
        frame: The kernel's frame.
        ring: The operand's.
        plan: The kernel's plan.
        target: Text of the tile's address in shared memory.
        loop_first: The variable of the loop axis's first index, for a looped operand.
    """
    operand = ring.operand
    dims, box = operand.map.dims, operand.map.box
    inner, array = dims[0], operand.map.array
    firsts = {axis: frame.block_first(axis) for axis in dims}
    if operand.loop is not None and loop_first is not None:
        firsts[operand.loop] = loop_first
    pairs = [(a, n) for a, n in zip(dims[1:], box[1:], strict=True) if n > 1][::-1]
    if not pairs or any(n & (n - 1) for _, n in pairs[1:]):
        raise unsuited(f"tiles of {array} have lines that bits do not number")
    size = frame.memories[array].dtype.bytes
    whole = frame.is_whole(inner)
    extents = "".join(f"{n}, " for _, n in pairs)
    make = frame.module.declare(
        f"copy_{array}",
        f"w.copy_pieces({tile_text(operand.tile)}, {plan.threads}, ({extents}), whole={whole})",
    )
    given = [target, address(frame, operand, firsts), "thread"]
    given.append(f"t.clamped({frame.parameter(Extent(inner))} - {firsts[inner]})")
    for axis, _ in pairs:
        given.append(f"{step(frame, array, axis)} * {size}")
        given.append(f"t.clamped({frame.parameter(Extent(axis))} - {firsts[axis]})")
    return [f"{make}({', '.join(given)})"]
