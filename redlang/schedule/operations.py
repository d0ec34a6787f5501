"""What operators take of a GPU's units, roughly."""

from __future__ import annotations

from redlang.ir import walk
from redlang.ir.program import Apply, Cast, Expr, Literal

SPECIAL = {"exp": 1, "exp2": 1, "log": 1, "log2": 1, "rsqrt": 1, "sqrt": 1, "div": 1}
COSTLY = {"tanh": 3, "sigmoid": 2, "erf": 4, "sin": 6, "cos": 6, "pow": 4}
"""Special-function instructions of an operator, roughly."""
WHOLE = {"quotient": 60, "part": 8}
"""Instructions of a division of whole numbers, and of one by a constant."""
TURNS = {"sin", "cos"}
ROOT = 16
"""Other instructions of a square root, which is rounded right; of any other special function, 4."""
EXTREME = {"max", "min", "minimum", "maximum", "lt", "le", "gt", "ge", "eq", "ne", "where", "abs"}
"""Operators that the units of comparisons and conversions do."""


def operators(expr: Expr) -> set[str]:
    """Return the operators of an expression."""
    return {node.op for node in walk.nodes(expr) if isinstance(node, Apply)}


def operation(node: Expr) -> tuple[str, bool, tuple[str, ...]] | None:
    """Return a node's operator, whether it is one of f64, and its axes; None if it has none."""
    match node:
        case Apply(op="pow", arguments=(_, Literal(value=exponent))) if float(
            exponent
        ).is_integer():
            return "mul", node.type.dtype.name == "f64", node.type.axes
        case Apply(op="floordiv" | "mod", arguments=(_, by)) if node.type.dtype.kind != "float":
            return "part" if isinstance(by, Literal) else "quotient", False, node.type.axes
        case Apply(op=op):
            arguments = [a.type.dtype.name for a in node.arguments]
            return op, "f64" in (node.type.dtype.name, *arguments), node.type.axes
        case Cast(to=to, explicit=True):
            return "cast", to.name == "f64", node.type.axes
        case _:
            return None
