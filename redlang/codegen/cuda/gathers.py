"""Elements at computed places: where each lies, and which of them are neighbours in memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from redlang.codegen.cuda.frame import Frame, Memory
from redlang.ir.program import Apply, Expr, Index, Literal, Load, Ref
from redlang.ir.types import BOOL, I64, Type


def plus(offset: Expr, place: Expr, step: str) -> Expr:
    """Return an offset further on along an axis."""
    factor: Expr = Literal(int(step), Type(I64)) if step.isdigit() else Ref(step, Type(I64))
    term = Apply("mul", (place, factor), Type(I64))
    if isinstance(offset, Literal):
        return term
    return Apply("add", (offset, term), Type(I64))


def clamped(place: Expr, extent: Expr) -> Expr:
    """Return a place, or 0 if it lies outside of its axis."""
    zero = Literal(0, Type(I64))
    above = Apply("ge", (place, zero), Type(BOOL))
    below = Apply("lt", (place, extent), Type(BOOL))
    return Apply("where", (Apply("and", (above, below), Type(BOOL)), place, zero), Type(I64))


def neighbours(
    frame: Frame,
    load: Load,
    memory: Memory,
    strides: Mapping[str, int],
    widest: int,
    tile: tuple[str, ...],
) -> tuple[int, int]:
    """Return how many elements of a thread's tile are neighbours in memory, and how far apart.

    Args:
        frame: The kernel's frame.
        load: What is read.
        memory: The array.
        strides: Those of its strides that are known.
        widest: The elements that its alignment lets one load have.
        tile: The axes of the tile.
    """
    pairs = list(zip(memory.axes, load.subscripts, strict=True))
    near = [part for own, part in pairs if strides.get(own) == 1]
    runs = [part.axis for part in near if isinstance(part, Index)]
    others = {axis for own, part in pairs if strides.get(own) != 1 for axis in part.type.axes}
    if len(runs) != 1 or runs[0] not in tile or runs[0] in others:
        return 1, 1
    (axis,) = runs
    # A run that lies outside reads the first one.
    width = gcd(frame.spread(axis).width, widest, frame.classes.multiple(axis))
    width = gcd(width, *(step for step in strides.values() if step != 1))
    return width, frame.size(tile[tile.index(axis) + 1 :])
