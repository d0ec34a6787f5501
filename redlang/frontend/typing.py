"""Typing of element functions: promotion, weak types and the checks that a user sees.

Three kinds of value meet in an expression. Strong floats decide the type (f64 if there is one);
weak floats (literals, `float` parameters, captured numbers, and what integers become by `/`) take
it on, whole sub-trees at a time; integers never widen a float. Where no strong float is in sight a
weak one is f32, or f64 in a kernel that has an f64 array, so that nothing is rounded to f32 on its
way to a double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from redlang.errors import DTypeError
from redlang.ir.build import computed, convert
from redlang.ir.operators import OPERATORS, Operator
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Scalar, Size
from redlang.ir.types import BOOL, F32, F64, I64, U64, DType, Type, compute_type
from redlang.source import Span

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
RANGES = {I64: (-(2**63), INT64_MAX), U64: (0, UINT64_MAX)}
"""The least and the largest number of a type."""


def promote(types: Sequence[Type]) -> tuple[DType, bool]:
    """Return the compute type in which values of `types` meet, and whether it stays weak."""
    strong = [type_.dtype for type_ in types if not type_.weak]
    floats = [dtype for dtype in strong if dtype.kind == "float"]
    if floats:
        return (F64 if F64 in floats else floats[0]), False
    weak = [type_.dtype for type_ in types if type_.dtype.kind == "float"]
    if weak:
        return (F64 if F64 in weak else weak[0]), True
    integers = {dtype for dtype in strong if dtype is not BOOL}
    if not integers and U64 in {type_.dtype for type_ in types}:
        return U64, not strong
    return (U64 if integers == {U64} else I64), not strong


def storage_promotion(dtypes: Sequence[DType]) -> DType | None:
    """Return the smallest floating storage type that holds all of `dtypes`; None for none.

    Two formats neither of which holds the other, such as f16 and bf16, meet in f32.
    """
    result: DType | None = None
    for dtype in dtypes:
        if result is None or _holds(dtype, result):
            result = dtype
        elif not _holds(result, dtype):
            result = F32
    return result


def coerce(expr: Expr, dtype: DType) -> Expr:
    """Return `expr` in the compute type `dtype`; weak sub-trees are typed anew.

    Raises:
        DTypeError: An integer literal is too large for the type.
    """
    if isinstance(expr, Literal) and dtype.kind == "float" and not isinstance(expr.value, float):
        try:
            float(expr.value)
        except OverflowError:
            raise DTypeError(f"the literal is too large for {dtype}", span=expr.span) from None
    if isinstance(expr, Literal) and isinstance(expr.value, bool) and dtype.kind in ("int", "uint"):
        return replace(expr, value=int(expr.value), type=replace(expr.type, dtype=dtype))
    converted = convert(expr, dtype)
    if isinstance(converted, Cast) and converted is not expr and not expr.type.weak:
        # An integer that becomes a float yields to strong floats, as everything made of it does.
        weak = expr.type.dtype.kind != "float" and dtype.kind == "float"
        converted = replace(converted, type=replace(converted.type, weak=weak))
    return converted


def apply(
    op: str, arguments: Sequence[Expr], axes: tuple[str, ...], real: DType, span: Span
) -> Expr:
    """Return `op` applied to `arguments`, in the type in which they meet.

    Args:
        op: A name of `OPERATORS`.
        arguments: The operands, resolved.
        axes: The union of the operands' axes.
        real: The type of a weak float in this kernel.
        span: Where it stands.

    Raises:
        DTypeError: The operands' types have no meaning for `op`.
    """
    operator = OPERATORS[op]
    if operator.rule == "compare" and {part.type.dtype for part in arguments} == {I64, U64}:
        return _compared_by_value(op, arguments, axes, span)
    strong = {part.type.dtype for part in arguments if not part.type.weak}
    if op in ("minimum", "maximum") and strong == {I64, U64}:
        return _chosen_by_value(op, arguments, axes, span)
    parts, dtype, weak = _meet(operator, list(arguments), real)
    absent = any(part.type.absent for part in parts)
    found = Apply(op, tuple(parts), Type(dtype, axes, absent, weak), span)
    _require_range(found)
    return found


def _require_range(expr: Apply) -> None:
    """Check that an integer made of literals alone is one of its type."""
    least, most = RANGES.get(expr.type.dtype, (0, 0))
    value = _whole(expr) if most else None
    if value is not None and not least <= value <= most:
        said = "a number that" if abs(value) > UINT64_MAX else f"{value}, which"
        raise DTypeError(
            f"this is {said} {expr.type.dtype} does not hold",
            hint="write one of its parts as a float: 10.0 ** 20",
            span=expr.span,
        )


def _whole(expr: Expr) -> int | None:
    """Return the integer that literals make, or as large a one; None if there is more in it."""
    if isinstance(expr, Literal):
        return expr.value if isinstance(expr.value, int) else None
    if not isinstance(expr, Apply):
        return None
    values: list[int] = []
    for argument in expr.arguments:
        value = _whole(argument)
        if value is None:
            return None
        values.append(value)
    match expr.op, values:
        case "neg", [a]:
            return -a
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b]:
            return a * b
        case "pow", [a, b] if b >= 0:
            # The least power of 2 that no type holds has the exponent 64.
            return int(a ** min(b, 64 + b % 2))
    return None


def cast(expr: Expr, to: DType, span: Span) -> Expr:
    """Return the cast that a user wrote as `to(expr)`; a weak float is not rounded before it."""
    if expr.type.weak and expr.type.dtype.kind == to.kind == "float":
        expr = coerce(expr, compute_type(to))
    type_ = replace(expr.type, dtype=compute_type(to), weak=False)
    return Cast(expr, to, type_, explicit=True, span=span)


def require_bool(expr: Expr, what: str, instead: str) -> None:
    """Check that `expr` is a truth value.

    Raises:
        DTypeError: It is not; the message says that `what` takes a bool, the hint is `instead`.
    """
    if expr.type.dtype is not BOOL:
        raise DTypeError(
            f"{what} takes a bool, and this is {_kind(expr.type)}", hint=instead, span=expr.span
        )


def require_integer(expr: Expr, what: str, hint: str = "") -> None:
    """Check that `expr` is an integer."""
    if expr.type.dtype.kind not in ("int", "uint"):
        raise DTypeError(
            f"{what} is an integer, and {spoken(expr)} is {_kind(expr.type)}",
            hint=hint or ("round it and cast: i64(...)" if expr.type.dtype.kind == "float" else ""),
            span=expr.span,
        )


def spoken(expr: Expr) -> str:
    """Return the name of a number from outside or a scalar parameter; `this` for anything else."""
    return expr.name if isinstance(expr, Scalar) else "this"


def _meet(operator: Operator, parts: list[Expr], real: DType) -> tuple[list[Expr], DType, bool]:
    """Return the arguments in their common type, the result's type, and whether it is weak."""
    types = [part.type for part in parts]
    match operator.rule:
        case "arithmetic":
            dtype, weak = promote(types)
            dtype = computed(operator.name, dtype)
            return _all(parts, dtype), dtype, weak
        case "real":
            dtype, weak = promote(types)
            dtype, weak = (dtype, weak) if dtype.kind == "float" else (real, True)
            return _all(parts, dtype), dtype, weak
        case "power":
            return _power(parts, real)
        case "compare":
            if all(type_.dtype is BOOL for type_ in types):
                if operator.name in ("eq", "ne"):
                    return parts, BOOL, False
                return _all(parts, I64), BOOL, False
            dtype, _ = promote(types)
            return _all(parts, dtype), BOOL, False
        case "logic":
            return _logic(operator, parts)
        case "test":
            if types[0].dtype.kind != "float":
                parts = _all(parts, real)
            return parts, BOOL, False
        case "where":
            condition, *choices = parts
            require_bool(condition, "the condition of where", "compare it: where(c != 0, a, b)")
            if all(part.type.dtype is BOOL for part in choices):
                return parts, BOOL, False
            _require_one_type(choices)
            dtype, weak = promote([part.type for part in choices])
            return [condition, *_all(choices, dtype)], dtype, weak
        case _:
            assert_never(operator.rule)


def _require_one_type(choices: Sequence[Expr]) -> None:
    """Refuse a choice between a u64 and a signed integer, which no type of integers holds."""
    strong = {part.type.dtype: part for part in choices if not part.type.weak}
    if set(strong) == {U64, I64}:
        raise DTypeError(
            "where chooses between a u64 and a signed integer, and no type holds both",
            hint="cast one of them: i64(x) wraps from 2**63 on, u64(x) below 0",
            span=strong[I64].span,
        )


def _compared_by_value(op: str, parts: Sequence[Expr], axes: tuple[str, ...], span: Span) -> Expr:
    """Compare a u64 with a signed integer, which is less than every u64 where it is negative."""
    left, right = parts
    signed = left if left.type.dtype is I64 else right
    absent = left.type.absent or right.type.absent
    unsigned = Apply(op, tuple(_all(parts, U64)), Type(BOOL, axes, absent), span)
    if isinstance(signed, Index | Size) or (isinstance(signed, Literal) and signed.value >= 0):
        return unsigned
    holds = op == "ne" or op in (("lt", "le") if signed is left else ("gt", "ge"))
    zero = Literal(0, Type(I64, weak=True), span)
    sign = Apply(
        "lt" if holds else "ge", (signed, zero), replace(signed.type, dtype=BOOL, weak=False), span
    )
    return Apply("or" if holds else "and", (sign, unsigned), Type(BOOL, axes, absent), span)


def _chosen_by_value(op: str, parts: Sequence[Expr], axes: tuple[str, ...], span: Span) -> Expr:
    """Choose between a u64 and a signed integer: the type of the one chosen holds the other."""
    unsigned, signed = sorted(parts, key=lambda part: part.type.dtype is I64)
    less = _compared_by_value("lt", (unsigned, signed), axes, span)
    dtype = I64 if op == "minimum" else U64
    choices = (unsigned, signed) if op == "minimum" else (signed, unsigned)
    absent = any(part.type.absent for part in parts)
    return Apply("where", (less, *_all(choices, dtype)), Type(dtype, axes, absent), span)


def _all(parts: Sequence[Expr], dtype: DType) -> list[Expr]:
    return [coerce(part, dtype) for part in parts]


def _power(parts: list[Expr], real: DType) -> tuple[list[Expr], DType, bool]:
    base, exponent = parts
    dtype, weak = promote([base.type, exponent.type])
    if dtype.kind != "float":
        counts = isinstance(exponent, Literal) and exponent.value >= 0
        if not counts:
            dtype, weak = real, True
    dtype = computed("pow", dtype)
    return _all(parts, dtype), dtype, weak


def _logic(operator: Operator, parts: list[Expr]) -> tuple[list[Expr], DType, bool]:
    kinds = {part.type.dtype.kind for part in parts}
    if kinds == {"bool"}:
        return parts, BOOL, False
    if "float" in kinds:
        wrong = next(part for part in parts if part.type.dtype.kind == "float")
        raise DTypeError(
            f"{operator.symbol} takes bools or integers, "
            f"and {spoken(wrong)} is {_kind(wrong.type)}",
            hint="compare it first: (x > 0)",
            span=wrong.span,
        )
    if "bool" in kinds:
        wrong = next(part for part in parts if part.type.dtype.kind != "bool")
        raise DTypeError(
            f"{operator.symbol} joins a bool and an integer",
            hint="compare the integer: (x != 0)",
            span=wrong.span,
        )
    dtype, weak = promote([part.type for part in parts])
    return _all(parts, dtype), dtype, weak


def _kind(type_: Type) -> str:
    kind = type_.dtype.kind
    return {"bool": "a bool", "int": "an integer", "uint": "an integer", "float": "a float"}[kind]


def _holds(large: DType, small: DType) -> bool:
    """Return whether every value of `small` is one of `large`."""
    if large is small:
        return True
    exponents = {"f8e4m3": 4, "f8e5m2": 5, "f16": 5, "bf16": 8, "f32": 8, "f64": 11}
    mantissas = {"f8e4m3": 3, "f8e5m2": 2, "f16": 10, "bf16": 7, "f32": 23, "f64": 52}
    return (
        exponents[large.name] >= exponents[small.name]
        and mantissas[large.name] >= mantissas[small.name]
    )
