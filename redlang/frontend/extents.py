"""What an axis may be declared from: `n = axis(16 * size(p))`."""

from __future__ import annotations

from redlang.errors import AxisError
from redlang.ir import walk
from redlang.ir.program import Apply, Expr, Literal, Scalar, Size

OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "neg", "minimum", "maximum", "clip", "abs")


def axis_extent(value: Expr) -> Expr | int:
    """Return an extent from the expression that the user wrote.

    Raises:
        AxisError: It is no integer, or is made of something else than sizes, literals and
            integer scalars.
    """
    if value.type.dtype.kind not in ("int", "uint"):
        hint = "divide with //" if value.type.dtype.kind == "float" else ""
        problem = "the extent of an axis is an integer"
        if isinstance(value, Scalar):
            problem += f", and {value.name} is a {value.type.dtype.kind}"
            hint = f"give {value.name} an integer value"
        raise AxisError(problem, hint=hint, span=value.span)
    for node in walk.nodes(value):
        allowed = isinstance(node, Literal | Size | Scalar) or (
            isinstance(node, Apply) and node.op in OPERATORS
        )
        if not allowed:
            raise AxisError(
                "the extent of an axis is made of sizes, literals and int parameters",
                hint="array elements are not known when results are allocated",
                span=value.span,
            )
    if isinstance(value, Literal):
        if value.value < 0:
            raise AxisError(f"the extent of an axis is {value.value}", span=value.span)
        return int(value.value)
    return value
