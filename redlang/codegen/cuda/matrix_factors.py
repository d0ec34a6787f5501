"""Results that are accumulators times one factor a row.

    where(any, once * sum, 0) / total    -->    sum * (once / total)

is one operation an element for four. It rounds as they do where the factor is a normal number and
nothing is chosen away. A warp with another row, one without elements or with a total near the ends
of the range, takes the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redlang.codegen.cuda.frame import Value, conjunction
from redlang.codegen.cuda.matrix_presence import all_rows
from redlang.codegen.cuda.values import Operands
from redlang.ir import walk
from redlang.ir.program import Apply, Expr, Literal, Ref
from redlang.ir.types import F32

if TYPE_CHECKING:
    from redlang.codegen.cuda.matrix_unit import MatrixUnit

FEWEST = 3
"""Operations an element from which on one is worth a test of rows."""
_LEAST, _GREATEST = 2.0**-126, 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Factored:
    """A value of fragments as one of them and what it is multiplied with.

    Attributes:
        fragment: The fragment.
        factors: Values of rows that multiply it.
        divisor: One that divides it.
        conditions: Tests of rows; it is 0 where one is false.
    """

    fragment: Expr
    factors: tuple[Expr, ...] = ()
    divisor: Expr | None = None
    conditions: tuple[Expr, ...] = ()

    @property
    def operations(self) -> int:
        """Return the operations an element that it takes as it is written."""
        return len(self.factors) + 2 * (self.divisor is not None) + len(self.conditions)


def factored(
    expr: Expr, made: Callable[[str], Expr | None], is_fragment: Callable[[Expr], bool]
) -> Factored | None:
    """Return a value taken apart; None if it is more than a fragment and factors of rows.

    Args:
        expr: The value.
        made: Gives the value of a name, if it has one only.
        is_fragment: Says whether an expression varies along columns.
    """
    if expr.type.dtype is not F32 or not is_fragment(expr):
        return None
    match expr:
        case Ref(name=name):
            value = made(name)
            return Factored(expr) if value is None else factored(value, made, is_fragment)
        case Apply(op="mul", arguments=(a, b)):
            inner, row = (a, b) if is_fragment(a) else (b, a)
            found = None if is_fragment(row) else factored(inner, made, is_fragment)
            return found and replace(found, factors=(*found.factors, row))
        case Apply(op="div", arguments=(a, b)):
            found = None if is_fragment(b) else factored(a, made, is_fragment)
            return replace(found, divisor=b) if found and found.divisor is None else None
        case Apply(op="where", arguments=(test, a, Literal(value=0))):
            found = None if is_fragment(test) else factored(a, made, is_fragment)
            return found and replace(found, conditions=(*found.conditions, test))
        case _:
            return None


def opened(
    expr: Expr, made: Callable[[str], Expr | None], is_fragment: Callable[[Expr], bool]
) -> Expr:
    """Return a value with the names of fragments that `factored` looks behind written out."""

    def rule(node: Expr) -> Expr:
        value = made(node.name) if isinstance(node, Ref) and is_fragment(node) else None
        return node if value is None else walk.rewrite(value, rule)

    return walk.rewrite(expr, rule)


def row_factor(unit: MatrixUnit, parts: Factored) -> tuple[Value, str]:
    """Write the factor of each row; return it and a test that a warp's rows may all use theirs."""
    frame, values = unit.frame, unit.values
    exprs = [*parts.factors, *parts.conditions]
    exprs += [] if parts.divisor is None else [parts.divisor]
    axes = frame.tile_axes(axis for expr in exprs for axis in expr.type.axes)
    operands = Operands()
    terms = [operands.name(values.value(factor)) for factor in parts.factors]
    if parts.divisor is not None:
        divisor = operands.name(values.value(parts.divisor))
        terms += [f"reciprocal({divisor})", f"scale_of({divisor})"]
    text = " * ".join(terms)
    (factor,) = values.mapped("factor", ["f32"], [], [text], operands, axes, frame.depth)
    operands = Operands()
    size = f"absolute({operands.name(factor)})"
    tests = [operands.name(values.value(test)) for test in parts.conditions]
    tests += [f"{size} >= f32({_LEAST!r})", f"{size} <= f32({_GREATEST!r})"]
    text = conjunction(tests)
    (plain,) = values.mapped("plain", ["bool"], [], [text], operands, axes, frame.depth)
    return factor, all_rows(unit, plain)
