"""Reductions: the checks that a user sees, `mean`, and top-k."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.errors import AxisError, DTypeError, RedlangError
from redlang.frontend import syntax
from redlang.frontend.draft import Draft
from redlang.frontend.hints import free
from redlang.frontend.typing import coerce, require_bool
from redlang.frontend.wording import named
from redlang.ir.presence import Conditions
from redlang.ir.program import Axis, Expr, Literal, Reduce, Scalar
from redlang.ir.types import BOOL, F64, I64, Type
from redlang.source import Span


def reduce(
    draft: Draft,
    op: str,
    axes: Sequence[str],
    operand: Expr,
    span: Span,
    *,
    k: int | None = None,
    new_axis: str | None = None,
) -> Reduce:
    """Return the reduction `op` of `operand` over `axes`.

    Raises:
        AxisError: An axis is missing, repeated, or not one of the operand's.
        DTypeError: any, all or count of something that is not a bool.
    """
    check_axes(draft, op, axes, [operand], span)
    if op in ("any", "all", "count"):
        require_bool(operand, op, f"compare it: {op}[{', '.join(axes)}](x != 0)")
    if operand.type.dtype is BOOL:
        op = {"max": "any", "min": "all"}.get(op, op)
        if op in ("sum", "prod", "argmax", "argmin", "topk"):
            operand = coerce(operand, I64)
    kept = [axis for axis in operand.type.axes if axis not in axes]
    if new_axis is not None:
        kept = list(draft.order([kept, [new_axis]]))
    types = _types(op, tuple(kept), operand.type, len(axes))
    return Reduce(op, tuple(axes), (operand,), None, types, k, new_axis, span=span)


def check_axes(
    draft: Draft, op: str, axes: Sequence[str], operands: Sequence[Expr], span: Span
) -> None:
    """Check that a reduction names its axes, each once, and that its operand has them.

    Raises:
        AxisError: It does not.
    """
    if not axes:
        have = operands[0].type.axes if operands else ()
        # What no result keeps is meant, or the last one: there most reductions are.
        kept = have if draft.kept is None else draft.kept
        meant = [axis for axis in named(have) if axis not in kept] or have[-1:]
        raise AxisError(
            f"{op} does not say over which axis",
            hint=f"{op}[{', '.join(meant)}](...); the operand has {' '.join(have)}" if have else "",
            span=span,
        )
    for position, axis in enumerate(axes):
        if axis in axes[:position]:
            raise AxisError(f"{op} names axis {axis} twice", hint="once is enough", span=span)
        if not any(axis in operand.type.axes for operand in operands):
            raise AxisError(
                f"{op} reduces axis {axis}, which its operand does not have "
                f"({_axes_text(operands)})",
                hint=_winners_hint(draft, op, axis, operands) or _constant_hint(op, axis),
                span=span,
            )


def mean(draft: Draft, axes: Sequence[str], operand: Expr, span: Span) -> Expr:
    """Return the sum of the elements that are there, divided by their number.

    The mean of integers is an int64 sum divided in f64; like every value made of integers it
    yields to the float that it meets.
    """
    check_axes(draft, "mean", axes, [operand], span)
    (total,) = draft.lift(reduce(draft, "sum", axes, operand, span))
    conditions = draft.presence.split(operand)[1] if operand.type.absent else ()
    number = _visible(draft, axes, conditions, span)
    if total.type.dtype.kind == "float":
        return draft.apply("div", total, number, span=span)
    quotient = draft.apply("div", coerce(total, F64), coerce(number, F64), span=span)
    return draft.define(draft.numbered("mean"), quotient, span)


def _visible(draft: Draft, axes: Sequence[str], conditions: Conditions, span: Span) -> Expr:
    """Return how many elements along `axes` are there."""
    present = draft.build.conjunction(conditions)
    if present is None:
        return draft.product(axes, span)
    varying = [axis for axis in axes if axis in present.type.axes]
    rest = draft.product([axis for axis in axes if axis not in varying], span)
    if not varying:
        return draft.apply("where", present, rest, 0, span=span)
    (count,) = draft.lift(reduce(draft, "count", varying, present, span))
    if len(varying) == len(axes):
        return count
    return draft.apply("mul", count, rest, span=span)


def topk(
    draft: Draft,
    axes: Sequence[str],
    new_axis: str | None,
    operand: Expr,
    k: Expr,
    span: Span,
) -> Reduce:
    """Return the `k` largest elements and their indices, along `new_axis` or an anonymous axis.

    Raises:
        AxisError: `new_axis` has another extent already.
        DTypeError: k is not a positive integer literal.
    """
    count = k.value if isinstance(k, Literal) and not isinstance(k.value, bool) else None
    if new_axis is not None and new_axis not in draft.axes:
        # Declared before anything can go wrong, so that what reads it stays silent.
        draft.declare(Axis(new_axis, count if isinstance(count, int) else 1, span))
    if not isinstance(count, int):
        raise no_count(k, span)
    if count < 1:
        raise DTypeError(
            f"topk keeps at least one element, and k is {count}",
            hint="k is how many are kept: 1 keeps the largest",
            span=span,
        )
    check_axes(draft, "topk", axes, [operand], span)
    if new_axis is None:
        new_axis = draft.declare(Axis(draft.fresh(str(count)), count, span))
    elif draft.extent(new_axis) != count:
        raise AxisError(
            f"topk makes axis {new_axis} of extent {count}, and {new_axis} is an axis already",
            hint="choose a new name for the axis that counts the k elements",
            span=span,
        )
    if new_axis in operand.type.axes:
        raise AxisError(f"the operand of topk has axis {new_axis} already", span=span)
    return reduce(draft, "topk", axes, operand, span, k=count, new_axis=new_axis)


def no_count(k: syntax.Expr | Expr, span: Span | None = None) -> RedlangError:
    """Return the error for a k that is no number when the kernel is made."""
    unknown = f", and {k.text} means nothing here" if isinstance(k, syntax.Name) else ""
    if isinstance(k, Scalar) and k.type.dtype.kind == "float":
        unknown = f", and {k.name} is a float"
    return DTypeError(
        f"the k of topk is an integer literal{unknown}",
        hint="a plan keeps k slots, so k is part of the kernel: write topk[e](p, 8), or name an "
        "integer that is defined outside; a parameter gets its value too late",
        span=span,
    )


def anonymous(axis: str) -> bool:
    """Return whether `axis` was made without a name: "8", or "8.1" for a second one."""
    return axis.partition(".")[0].isdigit()


def _types(op: str, kept: tuple[str, ...], operand: Type, axes: int) -> tuple[Type, ...]:
    match op:
        case "any" | "all":
            return (Type(BOOL, kept),)
        case "count":
            return (Type(I64, kept),)
        case "argmax" | "argmin":
            return (Type(I64, kept),) * axes
        case "topk":
            return (Type(operand.dtype, kept, weak=operand.weak), *(Type(I64, kept),) * axes)
        case _:
            return (Type(operand.dtype, kept, weak=operand.weak),)


def _axes_text(operands: Sequence[Expr]) -> str:
    axes = dict.fromkeys(axis for operand in operands for axis in operand.type.axes)
    return f"it has {' '.join(axes)}" if axes else "it has no axes"


def _winners_hint(draft: Draft, op: str, axis: str, operands: Sequence[Expr]) -> str:
    """Say how to reduce winners of topk, where those have an axis without a name in its place."""
    have = {axis for operand in operands for axis in operand.type.axes}
    for value in (definition.value for definition in draft.definitions.values()):
        if not isinstance(value, Reduce) or value.new_axis is None or axis not in value.axes:
            continue
        if anonymous(value.new_axis) and value.new_axis in have:
            new = free("jkl", {*draft.axes, *draft.params, *draft.taken})
            made = f"topk[{', '.join(value.axes)}:{new}](..., {value.k})"
            return f"name the axis that topk makes, {made}, and reduce that: {op}[{new}](...)"
    return ""


def _constant_hint(op: str, axis: str) -> str:
    """Say what a reduction of something that does not vary along `axis` is."""
    match op:
        case "sum":
            return f"the sum of something constant along {axis} is size({axis}) * ..."
        case "prod":
            return f"the product of something constant along {axis} is (...) ** size({axis})"
        case "count":
            return f"something constant along {axis} counts where(..., size({axis}), 0) times"
        case "max" | "min" | "mean" | "any" | "all":
            return f"the {op} of something constant along {axis} is that value itself"
        case _:
            return ""
