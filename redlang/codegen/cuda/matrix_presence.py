"""Rows that are known to have an element in a tile without a second look at its elements.

Before a maximum, absent elements are -inf. A row whose maximum is more than that has an element
that takes part; of other rows, and where it is NaN, the elements tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.values import Operands, constant
from redlang.ir.loops import Fold
from redlang.ir.program import Expr

if TYPE_CHECKING:
    from redlang.codegen.cuda.matrix_unit import MatrixUnit


def maximum_of(
    unit: MatrixUnit, folds: Iterable[Fold], condition: Expr, axes: tuple[str, ...]
) -> Value | None:
    """Return the tile's maximum of each row, where one has been computed already.

    Args:
        unit: What writes the kernel.
        folds: Folds over the tile whose absent elements are filled.
        condition: What elements that take part fulfil.
        axes: Those of rows.
    """
    for fold in folds:
        if fold.op != "max" or fold.condition != condition or fold.types[0].dtype.kind != "float":
            continue
        found = unit.frame.lookup(fold.names[0])
        if found is not None and found.axes == axes:
            return found
    return None


def shown_by(unit: MatrixUnit, maximum: Value) -> tuple[Value, str]:
    """Write which rows a maximum shows to have an element; return it and whether a warp's all do.

    Args:
        unit: What writes the kernel.
        maximum: The tile's maximum of each row, where what is absent was -inf.
    """
    frame, values = unit.frame, unit.values
    operands = Operands()
    text = f"{operands.name(maximum)} > {constant(-inf, maximum.code)}"
    (shown,) = values.mapped("shown", ["bool"], [], [text], operands, maximum.axes, frame.depth)
    return shown, all_rows(unit, shown)


def all_rows(unit: MatrixUnit, test: Value) -> str:
    """Return whether a test of rows holds for all of a warp's."""
    frame, values = unit.frame, unit.values
    operands = Operands()
    text = f"select({operands.name(test)}, i32(1), i32(0))"
    (each,) = values.mapped("each", ["i32"], [], [text], operands, test.axes, frame.depth)
    both = frame.module.function(
        "join_both", ["i32"], [("a", "i32"), ("b", "i32")], [], ["i32(a & b)"]
    )
    for axis in test.axes:
        make = frame.module.declare("both", f'w.fold({both}, {frame.counts(each.axes)}, "{axis}")')
        left = tuple(a for a in each.axes if a != axis)
        each = values.assign("each", f"{make}({each.text})", left, "i32", frame.depth)
    return f"t.ballot({each.text} == i32(0)) == u32(0)"
