"""Inlining: macros with axis parameters, and kernels that kernels call.

A body is resolved in a frame of its own. Its names are looked up where it was defined, its locals
and inner axes get names of their own (`softmax.p`), and its arguments are values: nothing that
happens to have the same name in the caller is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from redlang.errors import AxisError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend import names, syntax
from redlang.frontend.builtins import BUILTINS, REDUCERS, did_you_mean
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.gather import read
from redlang.frontend.reductions import anonymous
from redlang.frontend.scope import Callee, Macro
from redlang.frontend.signature import declare_extent, element_type
from redlang.frontend.typing import cast, coerce, require_integer
from redlang.ir.program import Dim, Expr, Index, Literal, Ref, Scalar, Size
from redlang.ir.types import BOOL, DTYPES, compute_type
from redlang.source import Span

Body: TypeAlias = Callable[[Frame], tuple[tuple[Expr | None, ...], syntax.Return] | None]
"""Resolves the statements of a frame: `expressions.body`, handed down to avoid a cycle."""


def inline(
    caller: Frame,
    node: syntax.Call,
    entity: Macro | Callee,
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
    body: Body,
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
            f"{name} calls itself; macros and kernels do not recurse", span=node.function.span
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
    given = _match(function, node, arguments, keywords)
    known, mistakes = set(caller.axes), len(draft.errors)
    bind = _bind_macro if isinstance(entity, Macro) else _bind_callee
    bind(caller, frame, node, given)
    draft.active.append(function)
    try:
        resolved = body(frame)
    finally:
        draft.active.pop()
    for text in set(caller.axes) - known:
        if caller.axes[text][0] not in draft.axes:
            del caller.axes[text]
            if len(draft.errors) == mistakes:
                raise names.no_axis(caller, text, node.span)
    if resolved is None:
        return (None,)
    results = list(resolved[0])
    if isinstance(entity, Callee) and function.returns is not None:
        for i, (value, annotation) in enumerate(zip(results, function.returns, strict=False)):
            if value is not None and annotation.dtype in DTYPES:
                results[i] = cast(value, DTYPES[annotation.dtype], frame.at(node.span))
    return tuple(results)


def _called_at(caller: Frame, name: str, span: Span) -> str:
    line, column = caller.source.position(span.start)
    return f"{name} is called at {caller.source.file}:{line}:{column}"


# Parameters


def _match(
    function: syntax.Function,
    node: syntax.Call,
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
) -> dict[str, Value]:
    """Return a value for each parameter, as Python would match them.

    Raises:
        UnknownNameError: There are too many, too few, doubled or unknown arguments.
    """
    name, parameters = function.name, function.parameters
    positional = [p for p in parameters if not p.keyword_only]
    if len(arguments) > len(positional):
        takes = f"{len(positional)} argument{'' if len(positional) == 1 else 's'}"
        raise UnknownNameError(
            f"{name} takes {takes}, and {len(arguments)} are given",
            hint=_signature(function),
            span=node.span,
        )
    given = {p.name: value for p, value in zip(positional, arguments, strict=False)}
    for keyword, value in keywords.items():
        span = next(k.span for k in node.keywords if k.name == keyword)
        if keyword not in {p.name for p in parameters}:
            hint = did_you_mean(keyword, [p.name for p in parameters]) or _signature(function)
            raise UnknownNameError(f"{name} has no parameter {keyword}", hint=hint, span=span)
        if keyword in given:
            raise UnknownNameError(f"{name} is given {keyword} twice", span=span)
        given[keyword] = value
    missing = [p.name for p in parameters if p.name not in given and p.default is None]
    if missing:
        raise UnknownNameError(
            f"{name} is called without {', '.join(missing)}",
            hint=_signature(function),
            span=node.span,
        )
    return given


def _signature(function: syntax.Function) -> str:
    axes = axis_parameters(function)
    brackets = f"[{', '.join(axes)}]" if axes else ""
    return f"{function.name}{brackets}({', '.join(p.name for p in function.parameters)})"


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


# Macros


def axis_parameters(function: syntax.Function) -> tuple[str, ...]:
    """Return the axis parameters of a macro: `@redlang.function(axes="m n")`."""
    for decorator in function.decorators:
        for option, value in decorator.options:
            if option == "axes" and isinstance(value, str):
                return tuple(value.replace(",", " ").split())
    return ()


def _bind_macro(caller: Frame, frame: Frame, node: syntax.Call, given: Mapping[str, Value]) -> None:
    for parameter in frame.function.parameters:
        value = given.get(parameter.name)
        value = _default(frame, parameter) if value is None else value
        if isinstance(parameter.annotation, syntax.ScalarAnnotation):
            value = _scalar(frame, parameter, parameter.annotation.kind, value, node.span)
        _bind(frame, parameter, value, frame.at(node.span))
    parameters = axis_parameters(frame.function)
    for name, axes in _macro_axes(caller, frame.function, parameters, node).items():
        frame.axes[name] = axes


def _macro_axes(
    caller: Frame, function: syntax.Function, parameters: Sequence[str], node: syntax.Call
) -> dict[str, tuple[str, ...]]:
    """Return what each axis parameter stands for.

    One parameter takes all axes that are given, several take one each; `l:n` binds by name.

    Raises:
        AxisError: They do not match.
    """
    usage = _signature(function)
    groups: dict[str, list[syntax.AxisBinding]] = {name: [] for name in parameters}
    for position, binding in enumerate(node.axes):
        if binding.target is not None:
            if binding.name not in groups:
                raise AxisError(
                    f"{function.name} has no axis {binding.name}", hint=usage, span=binding.span
                )
            groups[binding.name].append(binding)
        elif len(parameters) == 1:
            groups[parameters[0]].append(binding)
        elif position < len(parameters):
            groups[parameters[position]].append(binding)
        else:
            raise AxisError(
                f"{function.name} takes {len(parameters) or 'no'} axes, and {len(node.axes)} "
                f"{'is' if len(node.axes) == 1 else 'are'} given",
                hint=usage,
                span=binding.span,
            )
    found: dict[str, tuple[str, ...]] = {}
    for name, bindings in groups.items():
        if not bindings:
            raise AxisError(f"{function.name} needs its axis {name}", hint=usage, span=node.span)
        axes = [_given_axis(caller, function, name, binding) for binding in bindings]
        found[name] = tuple(axis for group in axes for axis in group)
    return found


def _given_axis(
    caller: Frame, function: syntax.Function, parameter: str, binding: syntax.AxisBinding
) -> tuple[str, ...]:
    """Return the kernel's axes that the caller gives; a new name where the macro makes the axis."""
    text = binding.target or binding.name
    if text in caller.axes:
        return caller.axes[text]
    if text in caller.bindings or text in BUILTINS or not _makes(function, parameter):
        raise names.no_axis(caller, text, binding.span)
    caller.axes[text] = (unique,) = (caller.draft.fresh(f"{caller.prefix}{text}"),)
    return (unique,)


def _makes(function: syntax.Function, axis: str) -> bool:
    """Return whether a macro may make the axis that it is given, by topk or through a macro."""
    for call in _calls(function):
        for binding in call.axes:
            if axis == binding.target:
                return True
            if axis == binding.name and call.function.text not in REDUCERS:
                return True
    return False


def _calls(function: syntax.Function) -> Iterator[syntax.Call]:
    stack: list[syntax.Expr] = []
    for statement in function.body:
        stack += statement.values if isinstance(statement, syntax.Return) else [statement.value]
    while stack:
        node = stack.pop()
        match node:
            case syntax.Call():
                yield node
                stack += [*node.arguments, *(keyword.value for keyword in node.keywords)]
            case syntax.Unary():
                stack.append(node.operand)
            case syntax.Binary():
                stack += [node.left, node.right]
            case syntax.Compare():
                stack += node.operands
            case syntax.IfElse():
                stack += [node.condition, node.then, node.otherwise]
            case syntax.Subscript():
                stack += node.subscripts
            case syntax.Number() | syntax.Name():
                pass


# Kernels


def _bind_callee(
    caller: Frame, frame: Frame, node: syntax.Call, given: Mapping[str, Value]
) -> None:
    function = frame.function
    renamed = _renamed(caller, function, node)
    for parameter in function.parameters:
        value = given.get(parameter.name)
        value = _default(frame, parameter) if value is None else value
        match parameter.annotation:
            case syntax.ScalarAnnotation(kind):
                value = _scalar(frame, parameter, kind, value, node.span)
            case syntax.ArrayAnnotation(dtype, dims) if dtype is not None and not dims:
                value = _typed_scalar(frame, parameter, dtype, value, node.span)
            case syntax.ArrayAnnotation():
                value = _array(caller, frame, parameter, parameter.annotation, value, renamed, node)
            case None:
                pass
        _bind(frame, parameter, value, frame.at(node.span))


def _renamed(caller: Frame, function: syntax.Function, node: syntax.Call) -> dict[str, str]:
    """Return the caller's axis for each axis that the call renames."""
    own = {
        spec.name
        for parameter in function.parameters
        if isinstance(parameter.annotation, syntax.ArrayAnnotation)
        for dim in parameter.annotation.dims
        for spec in dim.axes
        if spec.name is not None
    }
    renamed: dict[str, str] = {}
    for binding in node.axes:
        if binding.name not in own:
            raise AxisError(
                f"kernel {function.name} has no axis {binding.name}",
                hint=f"its axes are {', '.join(sorted(own))}; rename them by "
                f"{function.name}[{min(own, default='m')}:i](...)",
                span=binding.span,
            )
        axes = names.axes_of(caller, binding.target or binding.name, binding.span)
        if len(axes) != 1:
            raise AxisError(
                f"{binding.target} stands for several axes, and {binding.name} is one",
                span=binding.span,
            )
        renamed[binding.name] = axes[0]
    return renamed


def _array(
    caller: Frame,
    frame: Frame,
    parameter: syntax.Parameter,
    annotation: syntax.ArrayAnnotation,
    value: Value,
    renamed: Mapping[str, str],
    node: syntax.Call,
) -> Value:
    """Return an argument as a kernel's array parameter sees it: its axes matched by name."""
    draft, span = caller.draft, caller.at(node.span)
    if isinstance(value, Poison | Tuple):
        return Poison()
    expr = read(draft, value, span) if isinstance(value, ArrayView) else value
    spare = list(expr.type.axes)
    dims = tuple(
        Dim(
            tuple(_match_axis(caller, frame, parameter, a, renamed, spare, node) for a in spec.axes)
        )
        for spec in annotation.dims
    )
    if annotation.dtype is not None:
        _check_kind(frame, parameter, annotation.dtype, expr)
    if isinstance(value, ArrayView) and sorted(a for d in dims for a in d.axes) == sorted(
        value.param.axes
    ):
        return ArrayView(value.param, dims)
    return expr


def _match_axis(
    caller: Frame,
    frame: Frame,
    parameter: syntax.Parameter,
    spec: syntax.AxisSpec,
    renamed: Mapping[str, str],
    spare: list[str],
    node: syntax.Call,
) -> str:
    """Return the caller's axis for one axis of a parameter, and let the callee know it."""
    draft = caller.draft
    if spec.name is None:
        found = next((axis for axis in spare if draft.extent(axis) == spec.extent), None)
        own = str(spec.extent)
    else:
        own = spec.name
        axes = caller.axes.get(own, (own,))
        found = renamed.get(own) or (axes[0] if len(axes) == 1 else None)
    if found is None or found not in spare:
        have = " ".join(axis for axis in spare if not anonymous(axis)) or "no axes"
        rename = f"{frame.function.name}[{own}:{spare[0]}](...)" if spare else ""
        raise AxisError(
            f"{parameter.name} of {frame.function.name} has axis {own}, and its argument does not "
            f"({have})",
            hint=f"rename the kernel's axis: {rename}" if rename and spec.name else "",
            span=node.span,
        )
    if spec.extent is not None:
        declare_extent(draft, found, spec.extent, caller.at(node.span))
    frame.axes[own] = (found,)
    return found


def _check_kind(frame: Frame, parameter: syntax.Parameter, dtype: str, expr: Expr) -> None:
    wanted = element_type(dtype, parameter.span).kind
    have = expr.type.dtype.kind
    if (wanted == "float") != (have == "float") or (wanted == "bool") != (have == "bool"):
        raise DTypeError(
            f"{parameter.name} of {frame.function.name} is {dtype}, and its argument is computed "
            f"in {expr.type.dtype}",
            hint=f"cast it: {dtype}(...)",
        )


# Scalars


def _scalar(
    frame: Frame, parameter: syntax.Parameter, kind: str, value: Value, span: Span
) -> Value:
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


def _typed_scalar(
    frame: Frame, parameter: syntax.Parameter, dtype: str, value: Value, span: Span
) -> Value:
    """Return an argument of a `"f32[]"` parameter in its type."""
    expr = _without_axes(frame, parameter, value, span)
    if isinstance(expr, Poison):
        return expr
    _check_kind(frame, parameter, dtype, expr)
    expr = coerce(expr, compute_type(element_type(dtype, parameter.span)))
    return cast(expr, DTYPES[dtype], frame.at(span))


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
