"""Expressions over fragments: whole numbers of indices become floats at one addition an element.

    f32(k n + r)   -->   f32(k n' + r) + f32(k j)        n = n' + j, j known for each register

n' is the thread's first index of the tile, so that the left term is computed once a row, by integer
arithmetic, and the right one is a constant. So it is for the rows of a thread, which the constants
count too: of `m - n`, elements on one diagonal are the same addition. Both terms and their sum are
exact where nothing reaches 2^24, which extents say; beyond that, elements are converted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.matrix_frame import KNOWN, RANGE, MatrixFrame
from redlang.codegen.cuda.matrix_masks import linear
from redlang.codegen.cuda.matrix_scans import CAPACITY, place_of
from redlang.codegen.cuda.values import Loader, Operands, Values
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Ref, Size
from redlang.ir.types import F32, I64, Type
from redlang.schedule.operations import COSTLY, SPECIAL

EXACT = 1 << 24
"""Whole numbers up to this are f32 numbers."""


class MatrixValues(Values):
    """Computes expressions of a matrix kernel."""

    # A division has a way that calls; of a column's divisor a thread has two elements.
    shared_divisor = 2

    def __init__(self, frame: MatrixFrame, loader: Loader) -> None:
        super().__init__(frame, loader)
        self.builder = Builder(frame.order)
        self.rows = {axis for axis, _ in frame.matrix.rows}

    @staticmethod
    def end_test(expr: Expr) -> None:
        """Leave tests of places to what is known of whole tiles."""

    def _leaf(self, expr: Expr) -> Value | None:
        if not isinstance(expr, Ref):
            return super()._leaf(expr)
        kind, _, rest = expr.name.partition(".")
        if kind == RANGE:
            return Value(f"range_{rest.replace('.', '_')}", (), "i64")
        if kind == KNOWN:
            number, axis = rest.split(".")
            return Value(self._known(int(number), axis), (), "bool")
        return super()._leaf(expr)

    def _known(self, number: int, axis: str) -> str:
        """Return the variable of an answer about the current tile of a loop."""
        frame = self.frame

        def text() -> str:
            make = frame.module.declare("is_set", f"w.is_set({CAPACITY})")
            tile = f"i32({frame.first(axis)} // {frame.spread(axis).extent})"
            return f"{make}({place_of(number)}, {tile})"

        return frame.variable(f"known_{number}", axis, frame.axis_depth(axis), text)

    def _formed(
        self,
        expr: Expr,
        root: Expr,
        tile: tuple[str, ...],
        operands: Operands,
        done: dict[int, Expr],
    ) -> Expr:
        if isinstance(expr, Cast) and expr.to is F32 and expr.operand.type.dtype is I64:
            found = self._counted(expr.operand, root, tile, operands)
            if found is not None:
                return found
        return super()._formed(expr, root, tile, operands, done)

    def _counted(
        self, whole: Expr, root: Expr, tile: tuple[str, ...], operands: Operands
    ) -> Expr | None:
        """Return a whole number as a sum of two floats, if that is exact.

        Args:
            whole: The number.
            root: What is made of it. Rows share the sums if that is cheap; else its results would
                wait in registers for other rows.
            tile: The axes of the elements.
            operands: Where the two terms get names.
        """
        frame = self.frame
        for axis in tile:
            spread = frame.spread(axis)
            if axis in self.rows or spread.threads == 1 or axis not in whole.type.axes:
                continue
            split = linear(whole, _index_of(axis), self.builder)
            if split is None or split[0] == 0:
                continue
            factor, rest = split
            limit = self._largest(rest)
            extent = frame.classes.limits.get(axis)
            if limit is None or extent is None:
                continue
            # Registers of padding count beyond the extent.
            if limit + abs(factor) * (extent + spread.extent) > EXACT:
                continue
            factors = {axis: factor}
            for row in frame.tile_axes(rest.type.axes) if _is_cheap(root, axis) else ():
                also = linear(rest, _index_of(row), self.builder)
                if also is not None:
                    factors[row], rest = also
            base = self._base(rest, factors)
            constants = self._steps(factors)
            parts = tuple(Ref(operands.name(v), Type(F32)) for v in (base, constants))
            return Apply("add", parts, Type(F32, whole.type.axes))
        return None

    def _steps(self, factors: Mapping[str, int]) -> Value:
        """Return how far each element's whole number is from the thread's first one."""
        frame = self.frame
        axes = frame.tile_axes(factors)
        reaches = [[factors[axis] * r for r in frame.spread(axis).reaches] for axis in axes]
        steps = [sum(parts) for parts in product(*reaches)]
        make = frame.module.declare("steps", f"t.constants({steps})")
        name = frame.variable(f"{make}_tile", axes[0], 0, f"{make}()".__str__)
        return Value(name, axes, "f32")

    def _base(self, rest: Expr, factors: Mapping[str, int]) -> Value:
        """Return f32(k n' + rest) for the thread's first indices n' along axes with factors k."""
        frame = self.frame
        places = " + ".join(f"{frame.place(axis)} * {factors[axis]}" for axis in factors)
        depth = max(frame.depth_of(rest), *map(frame.axis_depth, factors))
        axes, base = frame.tile_axes(rest.type.axes), f"{next(iter(factors))}_base"
        given = Operands()
        if not axes:
            text = self.inline(self.operand_form(rest, (), given), given, depth)
            return self.assign(base, f"to_f32({places} + {text})", (), "f32", depth)
        first = given.name(self.assign("here", places, (), "i64", depth))
        text = f"to_f32({first} + {given.name(self.value(rest))})"
        (found,) = self.mapped(base, ["f32"], [], [text], given, axes, depth)
        return found

    def _largest(self, expr: Expr) -> int | None:
        """Return a bound of an integer's magnitude, from the extents."""
        match expr:
            case Literal(value):
                return abs(int(value))
            case Index(axis) | Size(axis):
                return self.frame.classes.limits.get(axis)
            case Cast(operand=operand, explicit=False) if operand.type.dtype is I64:
                return self._largest(operand)
            case Apply(op="neg", arguments=(a,)):
                return self._largest(a)
            case Apply(op="add" | "sub" | "mul" as op, arguments=(a, b)):
                x, y = self._largest(a), self._largest(b)
                if x is None or y is None:
                    return None
                return x * y if op == "mul" else x + y
            case _:
                return None


def _is_cheap(expr: Expr, axis: str) -> bool:
    """Say whether no function of elements along an axis costs more than keeping its results."""
    return not any(
        isinstance(node, Apply)
        and (node.op in SPECIAL or node.op in COSTLY)
        and axis in node.type.axes
        for node in walk.nodes(expr)
    )


def _index_of(axis: str) -> Callable[[Expr], bool]:
    return lambda expr: isinstance(expr, Index) and expr.axis == axis
