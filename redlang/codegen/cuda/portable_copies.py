"""Tiles of arrays on their way into shared memory, by all threads of a block."""

from __future__ import annotations

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.matrix_checks import address, step
from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_memory import Ring
from redlang.codegen.cuda.matrix_text import tile_text, unsuited
from redlang.schedule.matrices import MatrixPlan

PIECE = 16


def source_line(frame: MatrixFrame, ring: Ring, source: str, loop_first: str | None = None) -> str:
    """Return the line that says where a thread's first piece of a tile comes from.

    Args:
        frame: The kernel's frame.
        ring: The operand's.
        source: The variable for it.
        loop_first: The variable of the loop axis's first index, for a looped operand.
    """
    operand = ring.operand
    pairs = _lines_of(operand)
    extents = "".join(f"{n}, " for _, n in pairs)
    text = f"w.piece_source({tile_text(operand.tile)}, ({extents}))"
    make = frame.module.declare(f"{operand.name}_source", text)
    place = address(frame, operand, _firsts(frame, operand, loop_first))
    return f"{source} = {make}({place}, thread, {_bytes(frame, operand, pairs[0][0])})"


def next_source(frame: MatrixFrame, ring: Ring, source: str, tile: int) -> str:
    """Return the line that goes on to a looped operand's next tile of so many elements."""
    operand = ring.operand
    assert operand.loop is not None
    return f"{source} = {source} + {_bytes(frame, operand, operand.loop)} * {tile}"


def copy_line(
    frame: MatrixFrame,
    ring: Ring,
    plan: MatrixPlan,
    target: str,
    source: str,
    loop_first: str | None = None,
) -> str:
    """Return the line that starts the copies of one tile.

    Args:
        frame: The kernel's frame.
        ring: The operand's.
        plan: The kernel's plan.
        target: Text of the tile's address in shared memory.
        source: The variable that says where the thread's first piece comes from.
        loop_first: The variable of the loop axis's first index, for a looped operand.
    """
    operand = ring.operand
    inner = operand.map.dims[0]
    firsts = _firsts(frame, operand, loop_first)
    pairs = _lines_of(operand)
    whole = frame.is_whole(inner)
    extents = "".join(f"{n}, " for _, n in pairs)
    piece = "" if operand.piece == PIECE else f", piece={operand.piece}"
    text = f"{tile_text(operand.tile)}, {plan.threads}, ({extents}), whole={whole}{piece}"
    make = frame.module.declare(f"copy_{operand.name}", f"w.copy_pieces({text})")
    given = [target, source, "thread"]
    given.append(f"t.clamped({frame.parameter(Extent(inner))} - {firsts[inner]})")
    for axis, _ in pairs:
        given.append(_bytes(frame, operand, axis))
        given.append(f"t.clamped({frame.parameter(Extent(axis))} - {firsts[axis]})")
    return f"{make}({', '.join(given)})"


def _firsts(frame: MatrixFrame, operand: Operand, loop_first: str | None) -> dict[str, str]:
    """Return the first index of a tile along each of its axes."""
    firsts = {axis: frame.block_first(axis) for axis in operand.map.dims}
    if operand.loop is not None and loop_first is not None:
        firsts[operand.loop] = loop_first
    return firsts


def _lines_of(operand: Operand) -> list[tuple[str, int]]:
    """Return the axes of a tile's lines with its extent, slowest first."""
    dims, box = operand.map.dims, operand.map.box
    pairs = [(a, n) for a, n in zip(dims[1:], box[1:], strict=True) if n > 1][::-1]
    if not pairs or any(n & (n - 1) for _, n in pairs[1:]):
        raise unsuited(f"tiles of {operand.name} have lines that bits do not number")
    return pairs


def _bytes(frame: MatrixFrame, operand: Operand, axis: str) -> str:
    """Return text of an array's stride in bytes; 0 where nothing is known of it."""
    size = frame.memories[operand.map.array].dtype.bytes
    text = step(frame, operand.map.array, axis)
    if text.startswith("i64"):
        return f"{text} * {size}"
    # An axis of one element has any stride; even copies of nothing want aligned addresses.
    return f"({text} * {size} if {frame.parameter(Extent(axis))} > 1 else i64(0))"
