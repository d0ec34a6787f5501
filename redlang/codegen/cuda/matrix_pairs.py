"""Reductions over pairs of elements of two sides that are no products: who reads what.

As of a product, one side holds the rows of the block and the other one the columns. Both are arrays
as they are, copied into shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redlang.codegen.cuda.matrix_text import unsuited
from redlang.ir.loops import Fold
from redlang.ir.program import Expr, Load
from redlang.ir.types import Type
from redlang.schedule.contract import Lookup
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.pairings import find_pairing

if TYPE_CHECKING:
    from redlang.codegen.cuda.matrix_copies import Operand

Copied = Callable[[Load, str, "str | None"], "Operand"]
"""How a part of an array is copied: of the reduced axis and that of columns, None for rows."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A reduction over pairs of elements of two sides, by plain arithmetic.

    Attributes:
        fold: The statement.
        value: What is reduced, a function of names.
        elements: The names: of elements of the left operands, then of the right ones.
        lefts: The operands with the rows.
        rights: The operands with the columns.
        over: The reduced axis.
        column: The axis of the result's columns.
    """

    fold: Fold
    value: Expr
    elements: tuple[str, ...]
    lefts: tuple[Operand, ...]
    rights: tuple[Operand, ...]
    over: str
    column: str

    @property
    def name(self) -> str:
        """Return the name of the result."""
        return self.fold.names[0]

    @property
    def code(self) -> str:
        """Return the type of its values."""
        return self.type.dtype.name

    @property
    def type(self) -> Type:
        """Return the type of the result."""
        return self.fold.types[0]


def paired(fold: Fold, plan: MatrixPlan, lookup: Lookup, operand: Copied) -> Paired | None:
    """Return the roles of a reduction over pairs; None if it is none of this plan's rows.

    Args:
        fold: The reduction.
        plan: The kernel's plan.
        lookup: Gives the values of its loop.
        operand: Gives the operands.

    Raises:
        UnsuitedError: Its arrays are not what copies bring.
    """
    if len(fold.values) != 1 or len(fold.over) != 1:
        return None
    (over,), (type_, *_) = fold.over, fold.types
    pairing = find_pairing(fold.op, fold.values[0], fold.condition, over, lookup)
    rows = {axis for axis, _ in plan.rows}
    columns = [axis for axis in type_.axes if axis not in rows and plan.width(axis) > 1]
    if pairing is None or len(columns) != 1 or not rows & set(type_.axes):
        return None
    (column,) = columns
    lefts = [e for e in pairing.elements if column not in e[1].type.axes]
    rights = [e for e in pairing.elements if column in e[1].type.axes]
    found = Paired(
        fold,
        pairing.value,
        tuple(name for name, _ in (*lefts, *rights)),
        tuple(operand(load, over, None) for _, load in lefts),
        tuple(operand(load, over, column) for _, load in rights),
        over,
        column,
    )
    if not all(operand.tile.contracted for operand in (*found.lefts, *found.rights)):
        raise unsuited("pairs of arrays that are not adjacent along what is reduced")
    return found
