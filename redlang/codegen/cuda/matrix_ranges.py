"""Whether a computed operand of a product may be rounded to its type: only where its range fits.

bfloat16 has the range of f32. In f16 the largest number is 65504; what is proved to stay below it
is an element of 8 bits, and a weight under its own running maximum:

    tile = max[n](x); top = max(state, tile); point = clip(top); p = exp(x - point) <= 1

or that weight where an element is chosen, and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redlang.ir.loops import Combine, Compute, Contract, Fold, Statement
from redlang.ir.program import Apply, ArrayParam, Cast, Expr, Literal, Load, Ref

_SHORT_BITS = 8


def fits(
    contract: Contract,
    computed: Expr,
    dtype: str,
    body: Sequence[Statement],
    arrays: Mapping[str, ArrayParam],
) -> bool:
    """Say whether a computed operand of a product keeps its range in `dtype`.

    Args:
        contract: The product.
        computed: The operand.
        dtype: The type that the tensor core reads.
        body: The loop that the product is in.
        arrays: The program's arrays by name.
    """
    if dtype in ("bf16", "f32") or _is_stored_short(computed, arrays):
        return True
    values = {s.name: s.value for s in body if isinstance(s, Compute)}

    def known(expr: Expr) -> Expr:
        return values.get(expr.name, expr) if isinstance(expr, Ref) else expr

    weight, choice = known(computed), None
    if isinstance(weight, Apply) and weight.op == "where" and _is_zero(weight.arguments[2]):
        choice, weight = weight.arguments[0], known(weight.arguments[1])
    match weight:
        case Apply(op="exp", arguments=(Apply(op="sub", arguments=(x, point)),)):
            pass
        case _:
            return False
    top = known(point)
    if isinstance(top, Apply) and top.op == "clip":
        top = top.arguments[0]
    if not isinstance(top, Ref):
        return False
    combines = [s for s in body if isinstance(s, Combine) and s.names == (top.name,)]
    tiles = [name for s in combines if s.op == "max" for name in (*s.left, *s.right)]
    return any(
        isinstance(s, Fold)
        and s.op == "max"
        and s.names[0] in tiles
        and known(s.values[0]) == known(x)
        and set(contract.over) <= set(s.over)
        and s.condition in (None, contract.condition, choice)
        for s in body
    )


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == 0


def _is_stored_short(expr: Expr, arrays: Mapping[str, ArrayParam]) -> bool:
    while isinstance(expr, Cast):
        expr = expr.operand
    return isinstance(expr, Load) and arrays[expr.array].dtype.bits <= _SHORT_BITS
