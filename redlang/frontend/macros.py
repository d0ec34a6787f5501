"""Axis parameters of macros: `@redlang.function(axes="l")`, called `softmax[n](s)`.

An axis parameter stands for one axis of the caller or for a set of them, or for a new name where
the macro makes the axis itself, by `topk[e:j]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from redlang.errors import AxisError
from redlang.frontend import names, syntax
from redlang.frontend.builtins import BUILTINS, REDUCERS
from redlang.frontend.draft import Frame
from redlang.frontend.wording import are, counted


def axis_parameters(function: syntax.Function) -> tuple[str, ...]:
    """Return the axis parameters of a macro: `@redlang.function(axes="m n")`."""
    return _names(function, "axes")


def integer_parameters(function: syntax.Function) -> tuple[str, ...]:
    """Return the parameters that take integers: `@redlang.function(integers="label")`."""
    return _names(function, "integers")


def _names(function: syntax.Function, wanted: str) -> tuple[str, ...]:
    """Return the names that an option of a macro's decorator lists."""
    for decorator in function.decorators:
        for option, value in decorator.options:
            if option == wanted and isinstance(value, str):
                return tuple(value.replace(",", " ").split())
    return ()


def usage(function: syntax.Function) -> str:
    """Return how a macro or kernel is called: `softmax[l](s)`."""
    return _call(function.name, axis_parameters(function), function)


def usage_here(frame: Frame, function: syntax.Function, node: syntax.Call) -> str:
    """Return how the call `node` may be meant: by its own name and operand, `std.softmax[n](x)`."""
    axes = axis_parameters(function)
    if len(axes) == 1:
        given = [binding.name for binding in node.axes if binding.name in frame.axes]
        axes = tuple(given) or names.last_axis(frame, node) or axes
    written = [a.text if isinstance(a, syntax.Name) else None for a in node.arguments]
    return _call(node.function.text, axes, function, written)


def usage_of(text: str, axes: Sequence[str], function: syntax.Function) -> str:
    """Return how what is known as `text` is called along `axes`: `std.softmax[n](x)`."""
    parameters = axis_parameters(function)
    return _call(text, axes if axes and parameters else parameters, function)


def _call(
    name: str, axes: Sequence[str], function: syntax.Function, written: Sequence[str | None] = ()
) -> str:
    brackets = f"[{', '.join(axes)}]" if axes else ""
    pairs = zip_longest(function.parameters, written[: len(function.parameters)])
    parameters = [given or parameter.name for parameter, given in pairs]
    return f"{name}{brackets}({', '.join(parameters)})"


def bind_axes(
    caller: Frame, function: syntax.Function, node: syntax.Call
) -> dict[str, tuple[str, ...]]:
    """Return what each axis parameter stands for.

    One parameter takes all axes that are given, several take one each; `l:n` binds by name.

    Raises:
        AxisError: They do not match.
    """
    parameters, hint = axis_parameters(function), usage(function)
    groups: dict[str, list[syntax.AxisBinding]] = {name: [] for name in parameters}
    for position, binding in enumerate(node.axes):
        if binding.target is not None:
            if binding.name not in groups:
                raise AxisError(
                    f"{function.name} has no axis {binding.name}", hint=hint, span=binding.span
                )
            groups[binding.name].append(binding)
        elif len(parameters) == 1:
            groups[parameters[0]].append(binding)
        elif position < len(parameters):
            groups[parameters[position]].append(binding)
        else:
            raise AxisError(
                f"{function.name} takes {counted(len(parameters), 'axis', 'axes')}, and "
                f"{len(node.axes)} {are(len(node.axes))} given",
                hint=hint,
                span=binding.span,
            )
    found: dict[str, tuple[str, ...]] = {}
    for name, bindings in groups.items():
        if not bindings:
            hint = usage_here(caller, function, node)
            raise AxisError(f"{function.name} needs its axis {name}", hint=hint, span=node.span)
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
