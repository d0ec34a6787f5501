"""Arguments of scalar parameters where a macro or kernel is inlined."""

from __future__ import annotations

from redlang.errors import AxisError, DTypeError, RedlangError
from redlang.frontend import syntax
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.gather import read
from redlang.frontend.signature import element_type
from redlang.frontend.typing import cast, coerce, require_integer
from redlang.ir.program import Expr
from redlang.ir.types import BOOL, DTYPES, compute_type
from redlang.source import Span


def weak(frame: Frame, parameter: syntax.Parameter, kind: str, value: Value, span: Span) -> Value:
    """Return an argument of a `float`, `int` or `bool` parameter, still weak if it was."""
    expr = _without_axes(frame, parameter, value, span)
    if isinstance(expr, Poison):
        return expr
    match kind:
        case "float" if expr.type.dtype.kind != "float":
            if expr.type.dtype is BOOL:
                raise _wrong_kind(frame, parameter, kind, expr, span)
            return coerce(expr, frame.draft.real)
        case "int":
            require_integer(expr, f"{parameter.name} of {frame.function.name}")
        case "bool" if expr.type.dtype is not BOOL:
            raise _wrong_kind(frame, parameter, kind, expr, span)
        case _:
            pass
    return expr


def strong(
    frame: Frame, parameter: syntax.Parameter, dtype: str, value: Value, span: Span
) -> Value:
    """Return an argument of a `"f32[]"` parameter in its type."""
    expr = _without_axes(frame, parameter, value, span)
    if isinstance(expr, Poison):
        return expr
    if expr.type.dtype is BOOL or DTYPES[dtype].kind != "float":
        check_kind(frame, parameter, dtype, expr)
    expr = coerce(expr, compute_type(element_type(dtype, parameter.span)))
    return cast(expr, DTYPES[dtype], frame.at(span))


def integer(frame: Frame, name: str, value: Value | None, span: Span) -> None:
    """Check that an argument of a macro, of whatever axes, holds integers.

    Raises:
        DTypeError: It does not, or the macro has no such parameter.
    """
    owner = frame.function.name
    match value:
        case None:
            raise DTypeError(f"{owner} has no parameter {name}, and integers lists it", span=span)
        case Poison() | Tuple():
            return
        case ArrayView():
            dtype = value.param.dtype
        case _:
            dtype = value.type.dtype
    if dtype.kind not in ("int", "uint"):
        raise DTypeError(
            f"{name} of {owner} is an integer, and its argument is {dtype}",
            hint=f"cast it: {name}=i64(...)",
            span=span,
        )


def _without_axes(
    frame: Frame, parameter: syntax.Parameter, value: Value, span: Span
) -> Expr | Poison:
    if isinstance(value, Poison | Tuple):
        return Poison()
    expr = read(frame.draft, value, frame.at(span)) if isinstance(value, ArrayView) else value
    if expr.type.axes:
        raise AxisError(
            f"{parameter.name} of {frame.function.name} is a scalar, and its argument has axes "
            f"{' '.join(expr.type.axes)}",
            span=span,
        )
    return expr


def _wrong_kind(
    frame: Frame, parameter: syntax.Parameter, kind: str, expr: Expr, span: Span
) -> RedlangError:
    return DTypeError(
        f"{parameter.name} of {frame.function.name} is a {kind}, and its argument is computed in "
        f"{expr.type.dtype}",
        span=span,
    )


def check_kind(frame: Frame, parameter: syntax.Parameter, dtype: str, expr: Expr) -> None:
    """Check that an argument is of the kind that a parameter's element type has.

    Raises:
        DTypeError: It is not.
    """
    wanted = element_type(dtype, parameter.span).kind
    have = expr.type.dtype.kind
    if (wanted == "float") != (have == "float") or (wanted == "bool") != (have == "bool"):
        raise DTypeError(
            f"{parameter.name} of {frame.function.name} is {dtype}, and its argument is computed "
            f"in {expr.type.dtype}",
            hint=f"cast it: {dtype}(...)",
        )
