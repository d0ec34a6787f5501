"""Elements at computed places: where each lies, and which of them are neighbours in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd

from redlang.codegen.cuda.frame import Frame, Memory, Value
from redlang.codegen.cuda.values import Operands
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load, Ref
from redlang.ir.shifts import held_back
from redlang.ir.types import BOOL, I64, U32, U64, DType, Type

Form = Callable[[Expr], Expr]
"""From an expression to one over operands."""


def plus(offset: Expr, place: Expr, step: str) -> Expr:
    """Return an offset further on along an axis."""
    factor: Expr = Literal(int(step), Type(I64)) if step.isdigit() else Ref(step, Type(I64))
    place = place if place.type.dtype is I64 else Cast(place, I64, Type(I64), explicit=False)
    term = Apply("mul", (place, factor), Type(I64))
    if isinstance(offset, Literal):
        return term
    return Apply("add", (offset, term), Type(I64))


def inside(place: Expr, axis: str, extent: Expr, short: bool, form: Form) -> Expr:
    """Return a place if it lies on its axis, and some other place there if it does not.

    Places that the ends of the axis hold back are held there. All others are not meant.

    Args:
        place: A subscript.
        axis: The axis.
        extent: Its extent, an operand.
        short: Whether places have 32 bits.
        form: From a part of the subscript to operands.
    """
    code = U32 if short else I64
    held = held_back(place, axis)
    own = form(place if held is None else held[0])
    first = _as(code, Literal(0, Type(I64)))
    last = _as(code, Apply("sub", (extent, Literal(1, Type(I64))), Type(I64)))
    beyond: Expr = first if held is None else last
    if held is not None and held[1]:
        before = Apply("lt", (own, Literal(0, Type(I64))), Type(BOOL))
        beyond = Apply("where", (before, first, last), Type(code))
    # As an unsigned number, a place before the first one lies far behind the last.
    there = Apply("lt", (_as(U64, own), _as(U64, extent)), Type(BOOL))
    return Apply("where", (there, _as(code, own), beyond), Type(code))


def _as(dtype: DType, number: Expr) -> Expr:
    return number if dtype is I64 else Cast(number, dtype, Type(dtype), explicit=False)


def near(frame: Frame, axis: str, distance: int, width: int, operands: Operands) -> Expr:
    """Return how far shifted places lie from the thread's first index, and inside of their axis.

    Args:
        frame: The kernel's frame.
        axis: The axis.
        distance: How much further on than the indices they lie.
        width: How many neighbours along the axis are read at once.
        operands: Takes what the places are made of.
    """
    reaches = frame.spread(axis).reaches
    if distance == 0 and frame.is_whole(axis):
        make = frame.module.declare(f"{axis}_reaches", f't.indices("i64", {reaches})')
        text = f"{make}(i64(0))"
    else:
        run = f", {width}" if width > 1 else ""
        make = frame.module.declare(f"{axis}_near", f"t.near({reaches}, {distance}{run})")
        back = [f"t.clamped(i64(0) - {frame.place(axis)})"] if distance < 0 else []
        text = f"{make}({', '.join([frame.left(axis), *back])})"
    return Ref(operands.name(Value(text, frame.tile_axes([axis]), "i64")), Type(I64))


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
