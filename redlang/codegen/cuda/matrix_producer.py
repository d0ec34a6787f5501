"""The producer's text: one thread that starts a tensor copy whenever a tile of a ring is empty."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_memory import Ring
from redlang.codegen.cuda.matrix_text import TensorMap


def fill_ring(frame: MatrixFrame, ring: Ring, loop_first: str | None) -> list[str]:
    """Return lines that wait for an empty tile and start the copies that fill it.

    Args:
        frame: The kernel's frame.
        ring: The ring.
        loop_first: The variable of the loop axis's first index, for a looped operand.
    """
    operand = ring.operand
    copy = frame.module.declare("copy_in", f"w.copy_in({len(operand.map.dims)})")
    name = frame.parameter(operand.map)
    lines = [
        f"w.barrier_wait({ring.empty_barrier()}, {ring.parity} ^ i32(1))",
        f"w.barrier_expect({ring.full_barrier()}, {operand.tile.bytes})",
    ]
    for block in range(operand.tile.blocks):
        offset = f" + {block * operand.tile.block_bytes}" if block else ""
        places = coordinates(frame, operand.map, operand.loop, loop_first)
        if block:
            places[0] = f"{places[0]} + {block * operand.tile.width}"
        lines.append(
            f"{copy}({ring.tile()}{offset}, {name}, {ring.full_barrier()}, {', '.join(places)})"
        )
    return [*lines, *ring.advance()]


def coordinates(
    frame: MatrixFrame, tensor_map: TensorMap, loop: str | None, loop_first: str | None
) -> list[str]:
    """Return text of a box's first index along each dimension."""
    return [
        loop_first if axis == loop and loop_first is not None else frame.block_first(axis)
        for axis in tensor_map.dims
    ]


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines one level in."""
    return [f"    {line}" for line in lines]
