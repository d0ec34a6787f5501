"""Inlining: macros with axis parameters, and kernels that kernels call.

A body is resolved in a frame of its own. Its names are looked up where it was defined, its locals
and inner axes get names of their own (`softmax.p`), and its arguments are values: nothing that
happens to have the same name in the caller is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redlang.errors import UnknownNameError
from redlang.frontend import callees, macros, names, scalars, syntax
from redlang.frontend.builtins import did_you_mean
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.scope import Callee, Macro
from redlang.frontend.wording import are, counted
from redlang.ir.program import Expr, Index, Literal, Ref, Scalar, Size
from redlang.source import Span


def inline(
    caller: Frame,
    node: syntax.Call,
    entity: Macro | Callee,
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
) -> tuple[Expr | None, ...]:
    """Return the results of a macro or kernel for these arguments.

    Raises:
        UnknownNameError: It calls itself, or the arguments do not fit its parameters.
        AxisError: Axes are missing or do not fit.
    """
    function, draft = entity.syntax, caller.draft
    name = function.name
    if any(function is active for active in draft.active):
        raise UnknownNameError(
            f"{name} calls itself",
            hint="macros and kernels do not recurse: a body is put in the place of each call",
            span=node.function.span,
        )
    frame = Frame(
        draft,
        function,
        entity.source,
        entity.scope,
        prefix=f"{name}.",
        called=caller.at(node.span),
        inline=caller.inline,
        path=(_called_at(caller, name, node.span), *caller.path),
    )
    given = _match(frame, node, arguments, keywords, macros.usage_here(caller, function, node))
    known, mistakes = set(caller.axes), len(draft.errors)
    if isinstance(entity, Macro):
        frame.axes.update(macros.bind_axes(caller, function, node))
        passed = _macro_arguments(frame, node, given)
    else:
        passed = callees.arguments(caller, frame, node, given)
    for parameter in function.parameters:
        _bind(frame, parameter, passed[parameter.name], frame.at(node.span))
    draft.active.append(function)
    try:
        results = draft.body(frame)
    finally:
        draft.active.pop()
    for text in set(caller.axes) - known:
        if caller.axes[text][0] not in draft.axes:
            del caller.axes[text]
            if len(draft.errors) == mistakes:
                raise names.no_axis(caller, text, node.span)
    if isinstance(entity, Callee):
        return callees.results(frame, results, frame.at(node.span))
    return results


def _called_at(caller: Frame, name: str, span: Span) -> str:
    line, column = caller.source.position(span.start)
    place = f"{name} is called at {caller.source.file}:{line}:{column}"
    # The kernel's own line is the one that its author can change.
    return place if caller.path else f"{place}\n{caller.source.frame(span)}"


# Parameters


def _match(
    frame: Frame,
    node: syntax.Call,
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
    usage: str,
) -> dict[str, Value]:
    """Return a value for each parameter, as Python would match them.

    Raises:
        UnknownNameError: There are too many, too few, doubled or unknown arguments.
    """
    function = frame.function
    name, parameters = function.name, function.parameters
    positional = [p for p in parameters if not p.keyword_only]
    if len(arguments) > len(positional):
        raise UnknownNameError(
            f"{name} takes {counted(len(positional), 'argument')}, and {len(arguments)} "
            f"{are(len(arguments))} given",
            hint=usage,
            span=node.span,
        )
    given = {p.name: value for p, value in zip(positional, arguments, strict=False)}
    for keyword, value in keywords.items():
        span = next(k.span for k in node.keywords if k.name == keyword)
        if keyword not in {p.name for p in parameters}:
            hint = did_you_mean(keyword, [p.name for p in parameters]) or usage
            if keyword in ("axis", "axes", "dim") and macros.axis_parameters(function):
                hint = f"in a kernel the axis is named in brackets: {usage}"
            raise UnknownNameError(f"{name} has no parameter {keyword}", hint=hint, span=span)
        if keyword in given:
            raise UnknownNameError(f"{name} is given {keyword} twice", span=span)
        given[keyword] = value
    missing = [p.name for p in parameters if p.name not in given and p.default is None]
    if missing:
        raise UnknownNameError(
            f"{name} is called without {', '.join(missing)}",
            hint=usage,
            span=node.span,
        )
    for parameter in parameters:
        if parameter.name not in given:
            given[parameter.name] = _default(frame, parameter)
    return given


def _bind(frame: Frame, parameter: syntax.Parameter, value: Value, span: Span) -> None:
    """Bind a parameter to a value; a computed value gets a definition, so that it is shared."""
    atom = isinstance(value, Literal | Ref | Scalar | Size | Index | ArrayView | Tuple | Poison)
    if not atom and not frame.inline:
        assert not isinstance(value, ArrayView | Tuple | Poison)
        value = frame.draft.define(f"{frame.prefix}{parameter.name}", value, span)
    frame.bindings[parameter.name] = value
    frame.fixed.add(parameter.name)


def _default(frame: Frame, parameter: syntax.Parameter) -> Value:
    assert parameter.default is not None
    value: bool | int | float = parameter.default
    annotation = parameter.annotation
    if isinstance(annotation, syntax.ScalarAnnotation) and annotation.kind == "float":
        value = float(value)
    return frame.draft.number(value, frame.at(parameter.span))


def _macro_arguments(
    frame: Frame, node: syntax.Call, given: Mapping[str, Value]
) -> dict[str, Value]:
    """Return a macro's arguments; those of `float`, `int` and `bool` parameters are scalars."""
    passed = dict(given)
    for name in macros.integer_parameters(frame.function):
        scalars.integer(frame, name, given.get(name), node.span)
    for parameter in frame.function.parameters:
        if isinstance(parameter.annotation, syntax.ScalarAnnotation):
            kind, value = parameter.annotation.kind, given[parameter.name]
            passed[parameter.name] = scalars.weak(frame, parameter, kind, value, node.span)
    return passed
