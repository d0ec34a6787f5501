"""Matrix products: their axes, and operands with zeros for the elements that are left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redlang.ir import loops
from redlang.ir.program import Apply, Expr, Index, Literal, Load
from redlang.ir.types import Type


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """The axes of a matrix product's result by the part that they play."""

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def product_axes(contract: loops.Contract) -> ProductAxes:
    """Return the axes of the product's result by their part."""
    left, right = set(contract.left.type.axes), set(contract.right.type.axes)
    axes = contract.type.axes
    return ProductAxes(
        tuple(a for a in axes if (a in left) == (a in right)),
        tuple(a for a in axes if a in left and a not in right),
        tuple(a for a in axes if a in right and a not in left),
    )


def is_plain(load: Load) -> bool:
    """Say whether a load reads a part of an array, each axis by its own index."""
    axes = [part.axis for part in load.subscripts if isinstance(part, Index)]
    return len(axes) == len(load.subscripts) == len(set(axes))


@dataclass(frozen=True, slots=True)
class Hidden:
    """A product some of whose elements are left out: zeros stand in one operand for them.

    Attributes:
        left, right: The operands, one of them with zeros.
        other: The one without; where it is not finite, a zero would not hide it.
    """

    left: Expr
    right: Expr
    other: Expr


def hidden(contract: loops.Contract) -> Hidden | None:
    """Return the operands with zeros for what is left out; None if neither can hold them."""
    assert contract.condition is not None
    axes = product_axes(contract)
    over = set(contract.condition.type.axes)
    if not over & set(axes.columns):
        return Hidden(_masked(contract, contract.left), contract.right, contract.right)
    if not over & set(axes.rows):
        return Hidden(contract.left, _masked(contract, contract.right), contract.left)
    return None


def _masked(contract: loops.Contract, operand: Expr) -> Expr:
    assert contract.condition is not None
    wanted = {*contract.condition.type.axes, *operand.type.axes}
    order = dict.fromkeys((*contract.type.axes, *contract.over, *operand.type.axes))
    axes = tuple(axis for axis in order if axis in wanted)
    zero = Literal(0.0, Type(operand.type.dtype))
    type_ = replace(operand.type, axes=axes, weak=False)
    return Apply("where", (contract.condition, operand, zero), type_)


def as_fold(contract: loops.Contract) -> loops.Fold:
    """Return the product as a reduction, element by element."""
    axes = dict.fromkeys((*contract.left.type.axes, *contract.right.type.axes))
    type_ = replace(contract.type, axes=tuple(axes))
    product = Apply("mul", (contract.left, contract.right), type_)
    return loops.Fold(
        *((contract.name,), "sum", contract.over, (product,), contract.condition),
        (contract.type,),
    )
