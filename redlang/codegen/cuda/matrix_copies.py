"""How parts of arrays come into shared memory: boxes of tensor copies, and the tiles they fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_text import TensorMap, unsuited
from redlang.ir.loops import Loops
from redlang.ir.program import ArrayParam, Expr, Index, Load
from redlang.ir.types import BF16, F16, F32, DType
from redlang.schedule.fragments import (
    GROUP_ROWS,
    LINE_ALIGNMENT,
    STEP,
    SharedLine,
    SharedTile,
)
from redlang.schedule.matrices import MatrixPlan, MatrixUnitName
from redlang.schedule.narrow import EIGHT_BITS

LARGEST_BOX = 256
LARGEST_RANK = 5
COPY_ALIGNMENT = 16
STORED: dict[MatrixUnitName, tuple[DType, ...]] = {
    "wgmma": (F16, BF16),
    "mma": (F16, BF16),
    "tf32": (F32,),
}
"""What the operands of each unit's products hold; those of `fma` hold what they add up in."""


@dataclass(frozen=True, slots=True)
class Widened:
    """What consumers make of a tile of 8-bit elements, so that products can read it.

    Attributes:
        source: What the elements are.
        dtype: What they become.
        tile: How those lie in shared memory.
        width: Elements of a line that count.
    """

    source: DType
    dtype: str
    tile: SharedTile
    width: int


@dataclass(frozen=True, slots=True)
class Operand:
    """A tile of an array that copies bring into shared memory.

    Attributes:
        map: The tensor map.
        tile: How it lies there.
        loop: The axis of the loop that brings a new one each time, or None.
        piece: Bytes to which addresses and strides are aligned, 16 at most.
        fetched: Whether warps read it into registers, each for itself.
        wide: What it becomes before products read it; None if they read it as it comes.
    """

    map: TensorMap
    tile: SharedTile
    loop: str | None
    piece: int = 16
    fetched: bool = False
    wide: Widened | None = None

    @property
    def name(self) -> str:
        """Return what its variables are called after."""
        return self.map.array

    @property
    def multiplied(self) -> SharedTile:
        """Return the tile that products read."""
        return self.tile if self.wide is None else self.wide.tile


class Copies:
    """Says how the operands of one kernel are copied."""

    def __init__(self, loops: Loops, plan: MatrixPlan, classes: Classes) -> None:
        self.plan = plan
        self.classes = classes
        self.arrays = {p.name: p for p in loops.program.params if isinstance(p, ArrayParam)}
        self.rows = tuple(axis for axis, _ in plan.rows)
        self.tensor_copies = plan.unit == "wgmma"

    def operand(
        self,
        expr: Expr,
        over: str,
        column: str | None,
        loop: str | None,
        stored: Sequence[DType] | None = None,
    ) -> Operand:
        """Return how a part of an array is copied.

        Args:
            expr: The part.
            over: The contracted axis.
            column: The axis of columns; None for the rows' side.
            loop: The axis of the loop that it is in.
            stored: Types that the array may have; those of the unit's products if not given.
        """
        stored = stored or STORED.get(self.plan.unit, (self.plan.dtype,))
        array = self._plain_array(expr)
        axes = array.axes
        if array.dtype not in stored:
            raise unsuited(f"{array.name} holds {array.dtype}")
        known = self.classes.arrays[array.name]
        inner = [a for a in axes if known.strides.get(a) == 1]
        if len(inner) != 1:
            raise unsuited(f"{array.name} has no axis of adjacent elements")
        own = self.rows if column is None else (column,)
        if not set(own) <= set(axes) or over not in axes:
            raise unsuited(f"{array.name} lacks an axis of its product")
        return self._copied(array, inner[0], own, over, loop)

    def widened(self, load: Load, over: str, column: str, loop: str | None, dtype: str) -> Operand:
        """Return how a part of an array of 8 bits is copied that products read as `dtype`."""
        operand = self.operand(load, over, column, loop, EIGHT_BITS)
        if operand.loop is None:
            raise unsuited(f"{operand.name} is converted once for all tiles")
        width = _rounded_up(self.plan.width(operand.map.dims[0]), STEP)
        lines, contracted = operand.tile.rows, operand.tile.contracted
        tile = _tile(lines, width, F16.bytes, contracted=contracted)
        source = self.arrays[load.array].dtype
        return replace(operand, wide=Widened(source, dtype, tile, width))

    def _plain_array(self, expr: Expr) -> ArrayParam:
        """Return the array that an expression reads as it is, if tensor copies can."""
        if not isinstance(expr, Load) or any(expr.guarded):
            raise unsuited("a computed operand without rows")
        array = self.arrays[expr.array]
        axes = [part.axis for part in expr.subscripts if isinstance(part, Index)]
        if len(axes) != len(expr.subscripts) or len(set(axes)) != len(axes):
            raise unsuited(f"{array.name} is read at computed places")
        if tuple(axes) != array.axes:
            raise unsuited(f"{array.name} is read under other axes")
        known = self.classes.arrays.get(array.name)
        if known is None:
            raise unsuited(f"nothing is known of {array.name}")
        if self.tensor_copies and known.alignment % COPY_ALIGNMENT:
            raise unsuited(f"{array.name} is not laid out for tensor copies")
        return array

    def _copied(
        self, array: ArrayParam, inner: str, own: Sequence[str], over: str, loop: str | None
    ) -> Operand:
        contracted = inner == over
        if contracted:
            lines = tuple(own)
        elif inner == own[-1]:
            if len(own) > 1:
                raise unsuited(f"the rows of {array.name} are not adjacent")
            lines = (over,)
        else:
            raise unsuited(f"{array.name} is adjacent along {inner}")
        inner_width = _rounded_up(self.plan.width(inner), STEP)
        size = array.dtype.bytes
        tile_lines = 1
        for axis in lines:
            tile_lines *= self.plan.width(axis)
        if not contracted:
            tile_lines = _rounded_up(tile_lines, STEP)
        # Products by plain multiply-adds know one length of lines.
        spans = (128, 64, 32) if self.plan.unit != "fma" or size == F16.bytes else (128,)
        tile = _tile(tile_lines, inner_width, size, spans, contracted=contracted)
        width, span = tile.width, tile.span
        tiled = [inner, *reversed(lines)]
        steps = self.classes.arrays[array.name].strides
        if self.tensor_copies and any(steps.get(axis) == 0 for axis in tiled):
            raise unsuited(f"{array.name} is the same all along an axis of its tiles")
        # An array that is the same all along an axis has no such dimension in memory.
        rest = [a for a in reversed(array.axes) if a not in tiled and steps.get(a) != 0]
        if any(self.plan.width(axis) > 1 for axis in rest):
            raise unsuited(f"{array.name} has more tiled axes than a matrix")
        box = [width, *(self.plan.width(axis) for axis in reversed(lines)), *(1 for _ in rest)]
        if len(lines) == 1:
            box[1] = tile_lines
        dims = (*tiled, *rest)
        if self.tensor_copies and (len(dims) > LARGEST_RANK or max(box) > LARGEST_BOX):
            raise unsuited(f"{array.name} needs copies of rank {len(dims)}, box {tuple(box)}")
        looped = loop if loop in array.axes else None
        piece = min(COPY_ALIGNMENT, self.classes.arrays[array.name].alignment)
        return Operand(TensorMap(array.name, dims, tuple(box), span), tile, looped, piece)

    def line(self, load: Load, loop: str) -> Operand | None:
        """Return how a tile of an array without rows is copied, if it is one line."""
        array = self._plain_array(load)
        known = self.classes.arrays[array.name]
        dims = (loop, *(a for a in reversed(array.axes) if a != loop))
        size = self.plan.width(loop) * array.dtype.bytes
        alone = all(self.plan.width(axis) == 1 for axis in dims[1:])
        if array.dtype not in (F16, BF16, F32) or size % LINE_ALIGNMENT or not alone:
            return None
        if known.strides.get(loop) != 1 or 0 in known.strides.values() or len(dims) > LARGEST_RANK:
            return None
        box = (self.plan.width(loop), *(1 for _ in dims[1:]))
        tile = SharedLine(1, box[0], True, size)
        return Operand(TensorMap(array.name, dims, box, 0), tile, loop, fetched=True)


def is_fetchable(tile: SharedTile) -> bool:
    """Say whether warps can read a tile's rows: each group's lie in blocks of their own."""
    return tile.contracted or (tile.width == GROUP_ROWS and tile.size > 1)


def _tile(
    lines: int, width: int, size: int, spans: Sequence[int] = (128, 64, 32), *, contracted: bool
) -> SharedTile:
    """Return a tile of lines of so many elements: the longest span that one fills."""
    span = next((span for span in spans if width * size >= span), spans[-1])
    return SharedTile(lines, _rounded_up(width, span // size), contracted, span, size)


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
