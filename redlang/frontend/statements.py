"""Statements: what an assignment names, and what a body returns.

A local becomes a definition of the program under its own name; a second value under the same name
gets a name of its own (`s.1`). What is a name or a literal already stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, assert_never

from redlang.errors import AxisError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend import syntax
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.expressions import called, expression
from redlang.frontend.extents import axis_extent
from redlang.frontend.signature import check_name
from redlang.frontend.wording import are, counted
from redlang.ir.program import Axis, Expr, Literal, Reduce, Ref
from redlang.source import Span


def body(frame: Frame) -> tuple[Expr | None, ...]:
    """Resolve the statements of a body and return its results; None stands for a mistake."""
    results: tuple[Expr | None, ...] = ()
    for statement in frame.function.body:
        match statement:
            case syntax.Assign():
                _assign(frame, statement)
            case syntax.Return():
                results = _returned(frame, statement)
            case _:
                assert_never(statement)
    return results


def _returned(frame: Frame, statement: syntax.Return) -> tuple[Expr | None, ...]:
    if len(statement.values) != 1 or not isinstance(statement.values[0], syntax.Call):
        return tuple(expression(frame, value) for value in statement.values)
    value = called(frame, statement.values[0])
    if isinstance(value, Reduce):
        return frame.draft.lift(value)
    return value if isinstance(value, tuple) else (value,)


def _assign(frame: Frame, statement: syntax.Assign) -> None:
    targets, node = statement.targets, statement.value
    assignable = [_assignable(frame, target) for target in targets]
    if not all(assignable):
        frame.misused.update(target.text for target in targets)
        if not _declares_axis(node):
            expression(frame, node)
        return
    values: Sequence[Value] = [Poison()] * len(targets)
    try:
        if _declares_axis(node):
            _declare_axis(frame, targets, node)
            return
        values = _assigned(frame, targets, statement)
    except RedlangError as error:
        frame.report(error, statement.span)
    for target, value in zip(targets, values, strict=True):
        frame.bindings[target.text] = value


def _declares_axis(node: syntax.Expr) -> TypeGuard[syntax.Call]:
    return isinstance(node, syntax.Call) and node.function.text == "axis"


def _assignable(frame: Frame, target: syntax.Name) -> bool:
    """Report an assignment to something that is no local."""
    text, span = target.text, target.span
    try:
        check_name(text, "local", span)
        if text in frame.axes:
            raise AxisError(
                f"{text} is an axis and cannot be assigned",
                hint="parameters, axes and locals share one namespace; choose another name",
                span=span,
            )
        if text in frame.fixed:
            raise UnknownNameError(
                f"{text} is a parameter and cannot be assigned",
                hint=f"choose another name, such as {text}2",
                span=span,
            )
    except RedlangError as error:
        frame.report(error, span)
        return False
    return True


def _assigned(
    frame: Frame, targets: Sequence[syntax.Name], statement: syntax.Assign
) -> Sequence[Value]:
    """Return one value for each target of an assignment."""
    node = statement.value
    known = frame.bindings.get(node.text) if isinstance(node, syntax.Name) else None
    if isinstance(known, ArrayView) and len(targets) == 1:
        return [known]
    if isinstance(known, Tuple):
        if len(targets) == 1:
            return [known]
        _check_count(frame, targets, len(known.parts), node)
        return known.parts
    value = called(frame, node) if isinstance(node, syntax.Call) else expression(frame, node)
    if value is None:
        return [Poison()] * len(targets)
    if isinstance(value, Reduce):
        _check_count(frame, targets, len(value.types), node)
        names = [f"{frame.prefix}{target.text}" for target in targets]
        return frame.draft.define_reduce(names, value, frame.at(statement.span))
    parts = value if isinstance(value, tuple) else (value,)
    _check_count(frame, targets, len(parts), node)
    return [
        Poison() if part is None else _local(frame, target, part)
        for target, part in zip(targets, parts, strict=True)
    ]


def _local(frame: Frame, target: syntax.Name, value: Expr) -> Expr:
    if frame.inline or isinstance(value, Literal | Ref):
        return value
    return frame.draft.define(f"{frame.prefix}{target.text}", value, frame.at(target.span))


def _check_count(
    frame: Frame, targets: Sequence[syntax.Name], values: int, node: syntax.Expr
) -> None:
    """Check that an assignment has as many values as names.

    Raises:
        DTypeError: It has more or fewer.
    """
    if len(targets) == values:
        return
    called_name = node.function.text if isinstance(node, syntax.Call) else ""
    hint = ""
    if called_name in ("argmax", "argmin"):
        hint = f"{called_name} over {counted(values, 'axis', 'axes')} gives one index for each"
    elif called_name == "topk":
        hint = "topk gives values and indices: v, i = topk[e](p, 8)"
    raise DTypeError(
        f"{counted(values, 'value')} {are(values)} assigned to {counted(len(targets), 'name')}",
        hint=hint,
        span=node.span,
    )


def _declare_axis(frame: Frame, targets: Sequence[syntax.Name], call: syntax.Call) -> None:
    """Declare the axis of `n = axis(16 * size(p))`."""
    draft, target = frame.draft, targets[0]
    if len(targets) != 1 or len(call.arguments) != 1 or call.keywords or call.axes:
        raise AxisError(
            "axis declares one axis from one extent", hint="n = axis(16 * size(p))", span=call.span
        )
    if target.text in frame.bindings:
        raise AxisError(f"{target.text} is a local already and cannot be an axis", span=target.span)
    unique = draft.fresh(f"{frame.prefix}{target.text}")
    frame.axes[target.text] = (unique,)
    value = expression(frame, call.arguments[0])
    extent = None
    try:
        extent = axis_extent(value) if value is not None else None
    finally:
        draft.declare(Axis(unique, extent, frame.at(target.span)))


def returned_places(function: syntax.Function, count: int) -> tuple[Span, list[Span]]:
    """Return where the return statement stands, and where each of its `count` results does."""
    statement = function.body[-1]
    assert isinstance(statement, syntax.Return)
    places = [value.span for value in statement.values]
    return statement.span, places if len(places) == count else [places[0]] * count
