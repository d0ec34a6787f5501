"""Looking names up: locals and axes first, then builtins, then what is outside the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from redlang.errors import AxisError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend import scope as outside
from redlang.frontend import syntax
from redlang.frontend.builtins import (
    BUILTINS,
    CONSTANTS,
    REDUCERS,
    did_you_mean,
    in_library,
    nearest,
    no_function,
)
from redlang.frontend.draft import (
    ArrayView,
    Capture,
    Draft,
    Frame,
    Poison,
    SilencedError,
    Tuple,
    Used,
    Value,
)
from redlang.frontend.gather import read
from redlang.frontend.hints import RUNNING, running, undeclared
from redlang.frontend.signature import scalar_value
from redlang.frontend.wording import letters, named
from redlang.ir.program import Expr, Ref, Scalar, ScalarParam
from redlang.ir.types import BOOL, F64, I64, DType
from redlang.source import Span

Inlined: TypeAlias = outside.Macro | outside.Callee | outside.UserMonoid

NAME_TOPK = "the axis that topk makes has a name where topk says so, as in topk[n:j](x, 4)"
_CAPTURED: dict[str, DType] = {"bool": BOOL, "int": I64, "float": F64}


def name(frame: Frame, text: str, span: Span) -> Expr | None:
    """Return the value of a name; None if a mistake in its definition was reported already.

    Raises:
        UnknownNameError: It means nothing, or nothing that has a value.
    """
    if text in frame.misused:
        return None
    if text in frame.bindings:
        return _value(frame, text, frame.bindings[text], span)
    if text in frame.axes:
        return index(frame, text, span)
    if text in CONSTANTS:
        return frame.draft.number(CONSTANTS[text], frame.at(span))
    if text in BUILTINS:
        raise UnknownNameError(f"{text} is a function and stands here without a call", span=span)
    return _captured(frame, text, span)


def index(frame: Frame, text: str, span: Span) -> Expr:
    """Return the index along an axis, row-major where a macro's axis is a set of axes."""
    return frame.draft.flat(axes_of(frame, text, span), frame.at(span))


def axes_of(frame: Frame, text: str, span: Span) -> tuple[str, ...]:
    """Return the kernel's axes that an axis name stands for.

    Raises:
        AxisError: The name is no axis, or its axis is not declared yet.
    """
    axes = frame.axes.get(text)
    if axes is None:
        raise no_axis(frame, text, span)
    for axis in axes:
        if axis not in frame.draft.axes:
            raise AxisError(
                f"{axis} is no axis yet where {frame.function.name} uses it as {text}", span=span
            )
    return axes


def no_axis(frame: Frame, text: str, span: Span) -> RedlangError:
    """Return the error for a name that stands where an axis belongs."""
    if frame.draft.doubtful:
        return SilencedError("an axis of a parameter that has a mistake")
    known = named(frame.axes)
    hint = did_you_mean(text, known)
    if not hint and known:
        hint = f"axes are {', '.join(known)}"
    made = {anonymous for anonymous in frame.draft.axes if not anonymous.isidentifier()}
    if made - {axis for group in frame.axes.values() for axis in group}:
        hint = "; ".join(filter(None, (hint, NAME_TOPK)))
    what = "a value" if text in frame.bindings else "no axis of this kernel"
    return AxisError(f"{text} is {what}", hint=hint, span=span)


def array(frame: Frame, text: str, span: Span) -> ArrayView | Tuple | None:
    """Return what a subscripted name stands for; None if that is reported already.

    Raises:
        UnknownNameError: The name means nothing.
        DTypeError: It is not an array parameter.
    """
    value = frame.bindings.get(text)
    match value:
        case ArrayView() | Tuple():
            return value
        case Poison():
            return None
        case None if text not in frame.axes and text not in BUILTINS:
            entity = frame.scope.find(text)
            if entity is None:
                raise _unknown(frame, text, span)
            if isinstance(entity, outside.Foreign):
                raise _foreign(entity, text, span)
            hint = ""
        case _:
            axes = named(value.type.axes) if isinstance(value, Expr) else ()
            element = "sum[n](where(n == i, x))"
            if axes:
                element = f"sum[{axes[-1]}](where({axes[-1]} == i, {text}))"
            hint = f"an element of a computed value is a reduction: {element}"
            if isinstance(value, Expr) and len(axes) < len(value.type.axes):
                hint = f"{NAME_TOPK}; then an element is sum[j](where(j == 0, {text}))"
    raise DTypeError(
        f"{text} is no array parameter, and only those take subscripts", hint=hint, span=span
    )


def array_along(frame: Frame, axes: Sequence[str]) -> str:
    """Return the name of an array with these axes, or `x`."""
    views = ((text, view) for text, view in frame.bindings.items() if isinstance(view, ArrayView))
    return next((text for text, view in views if {*axes} <= {*view.param.axes}), "x")


def last_axis(frame: Frame, node: syntax.Call) -> tuple[str, ...]:
    """Return the last axis of a call's first argument where that is a name; empty if unknown."""
    first = node.arguments[0] if node.arguments else None
    value = frame.bindings.get(first.text) if isinstance(first, syntax.Name) else None
    match value:
        case ArrayView():
            axes = value.param.axes
        case None | Tuple() | Poison():
            return ()
        case _:
            axes = value.type.axes
    return tuple(named(axes)[-1:])


def function(frame: Frame, node: syntax.Call) -> Inlined:
    """Return the macro, kernel or monoid that a call names, and note that it is used.

    Raises:
        UnknownNameError: The name is not one of them.
    """
    text, span = node.function.text, node.function.span
    if text in frame.bindings or text in frame.axes:
        kind = "an axis" if text in frame.axes else "a value"
        hint = f"to index it write {text}[...]" if text in frame.bindings else ""
        raise UnknownNameError(f"{text} is {kind} and cannot be called", hint=hint, span=span)
    entity = frame.scope.find(text)
    match entity:
        case outside.Macro() | outside.Callee() | outside.UserMonoid():
            frame.draft.used.setdefault((id(frame.scope), text), Used(frame.scope, text, entity))
            return entity
        case None:
            if text == frame.draft.name:
                raise UnknownNameError(
                    f"{text} calls itself", hint="kernels do not recurse", span=span
                )
            candidates = [*BUILTINS, *frame.scope.candidates(text)]
            hint = _scan(frame, node) or no_function(text.rpartition(".")[2], candidates)
            hint = hint or "a function of your own is a macro: decorate it with @redlang.function"
            raise UnknownNameError(f"there is no function {text}", hint=hint, span=span)
        case outside.Number():
            raise UnknownNameError(f"{text} is a number and cannot be called", span=span)
        case outside.Foreign(what, hint=advice):
            last = text.rpartition(".")[2]
            hint = advice or (
                f"use redlang's own {_own(frame, node, last)}"
                if last in BUILTINS
                else _scan(frame, node)
                or (no_function(last, ()) if in_library(last) else did_you_mean(last, BUILTINS))
                or "to use it in kernels, write it in the language and decorate it with "
                "@redlang.function"
            )
            raise UnknownNameError(
                f"{text} is {what}, which a kernel cannot call", hint=hint, span=span
            )


def _own(frame: Frame, node: syntax.Call, builtin: str) -> str:
    """Return what stands for another library's function of that name: `sum[n](x)` or `exp`."""
    if builtin not in REDUCERS:
        return builtin
    axis = "".join(last_axis(frame, node)) or "n"
    first = node.arguments[0] if node.arguments else None
    return f"{builtin}[{axis}]({first.text if isinstance(first, syntax.Name) else '...'})"


def _scan(frame: Frame, node: syntax.Call) -> str:
    """Return how a scan of an array is written; nothing for other calls."""
    name = node.function.text.rpartition(".")[2]
    first = node.arguments[0] if node.arguments else None
    array = frame.bindings.get(first.text) if isinstance(first, syntax.Name) else None
    if name not in RUNNING or not isinstance(first, syntax.Name):
        return ""
    if not isinstance(array, ArrayView) or any(len(dim.axes) > 1 for dim in array.dims):
        return ""
    axes = tuple(axis for dim in array.dims for axis in dim.axes)
    along = node.axes[0].name if node.axes else axes[-1] if axes else ""
    if along not in axes or named(axes) != list(axes):
        return ""
    return running(name, axes, along, first.text, {*frame.known(), *BUILTINS})


def is_unknown(frame: Frame, node: syntax.Expr) -> bool:
    """Tell whether an expression is a name that means nothing."""
    if not isinstance(node, syntax.Name) or node.text in frame.misused:
        return False
    known = node.text in frame.bindings or node.text in frame.axes or node.text in BUILTINS
    return not known and frame.scope.find(node.text) is None


def settled(frame: Frame, value: Expr) -> Expr:
    """Return an integer from outside as a literal, and anything else as it is.

    A kernel that holds one is made anew once the name means another.
    """
    if not isinstance(value, Scalar):
        return value
    for capture in frame.draft.captures.values():
        entity = capture.scope.find(capture.path) if capture.name == value.name else None
        if isinstance(entity, outside.Number) and entity.kind == "int":
            used = Used(capture.scope, capture.path, entity)
            frame.draft.used.setdefault((id(capture.scope), capture.path), used)
            return frame.draft.number(entity.value, value.span)
    return value


def _value(frame: Frame, text: str, value: Value, span: Span) -> Expr | None:
    match value:
        case Poison():
            return None
        case ArrayView():
            return read(frame.draft, value, frame.at(span))
        case Tuple(parts):
            raise DTypeError(
                f"{text} has {len(parts)} parts",
                hint=f"take it apart: {letters(len(parts))} = {text}",
                span=span,
            )
        case Ref(known, type_):
            return Ref(known, type_, frame.at(span))
        case _:
            return value


def _captured(frame: Frame, text: str, span: Span) -> Expr:
    """Return a number from outside as a scalar parameter."""
    entity = frame.scope.find(text)
    if text == frame.draft.name and not isinstance(entity, outside.Number):
        entity = None
    match entity:
        case outside.Number(_, kind):
            return scalar_value(frame.draft, _capture(frame, text, kind), frame.at(span))
        case outside.Foreign():
            raise _foreign(entity, text, span)
        case outside.Macro() | outside.Callee() | outside.UserMonoid():
            raise UnknownNameError(
                f"{text} is a function and stands here without a call", span=span
            )
        case None:
            raise _unknown(frame, text, span)


def _capture(frame: Frame, text: str, kind: outside.Kind) -> ScalarParam:
    draft: Draft = frame.draft
    key = (id(frame.scope), text)
    if key not in draft.captures:
        stem = text if not frame.prefix else f"{frame.prefix}{text}"
        unique = draft.fresh(text if text not in draft.taken and text not in draft.axes else stem)
        kind = draft.signature.kinds.get(unique, kind)
        draft.captures[key] = Capture(unique, frame.scope, text)
        draft.captured[unique] = ScalarParam(unique, _CAPTURED[kind], weak=True, captured=True)
    return draft.captured[draft.captures[key].name]


def _foreign(entity: outside.Foreign, text: str, span: Span) -> RedlangError:
    if entity.array:
        return UnknownNameError(
            f"{text} is an array from outside the kernel",
            hint=f'make it a parameter with its own axes, such as {text.rpartition(".")[2]}: "m n"',
            span=span,
        )
    return UnknownNameError(
        f"{text} is {entity.what}, and only numbers can be used from outside",
        hint="" if entity.callable else "pass numbers and arrays as parameters",
        span=span,
    )


def _unknown(frame: Frame, text: str, span: Span) -> RedlangError:
    owner, dot, last = text.rpartition(".")
    if dot and frame.scope.find(owner) is None:
        hint = f"{owner} means nothing here"
    elif dot:
        # Only what stands behind the dot may be misspelled: the owner is known.
        match = nearest(last, (name.rpartition(".")[2] for name in frame.scope.candidates(text)))
        hint = f"did you mean {owner}.{match}?" if match else f"no number {last} is in {owner}"
    else:
        hint = "" if frame.inline else undeclared(frame.function, text)
        hint = hint or did_you_mean(
            text, [*frame.known(), *CONSTANTS, *frame.scope.candidates(text)]
        )
    if not hint:
        hint = f"define the number outside, or make it a parameter: {text}: float"
    return UnknownNameError(
        f"{text} is no parameter, axis, local, builtin or number from outside",
        hint=hint,
        span=span,
    )
