"""The state of one reduction: what it is made of, and its neutral value."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.algebra.operators import IDENTITIES
from redlang.ir.build import literal
from redlang.ir.program import Expr, Literal
from redlang.ir.types import BOOL, I64, U64, DType, Type


def identity(op: str, dtype: DType, position: int = 0) -> Literal:
    """Return the neutral value of a reduction's state; `position` counts its parts."""
    if op in ("argmax", "argmin", "topk"):
        if position:
            return literal(-1, I64)
        op = "min" if op == "argmin" else "max"
    if op == "mantissa":
        # A mantissa lies in [0.5, 1): 1 = 0.5 * 2.
        return literal(1, I64) if position else literal(0.5, dtype)
    if op in ("max", "min") and dtype.kind != "float":
        lowest, highest = (0, 2**64 - 1) if dtype is U64 else (-(2**63), 2**63 - 1)
        return Literal(lowest if op == "max" else highest, Type(dtype))
    return literal(IDENTITIES[op], dtype)


def state_dtypes(op: str, values: Sequence[Expr]) -> tuple[DType, ...]:
    """Return the types of a reduction's state, part by part, from those of its values."""
    dtype = values[0].type.dtype
    match op:
        case "count":
            return (I64,)
        case "any" | "all":
            return (BOOL,)
        case "argmax" | "argmin" | "topk" | "mantissa":
            return (dtype, I64)
        case _:
            return (I64 if dtype is BOOL else dtype,)
