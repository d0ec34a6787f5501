"""Expressions: Syntax in, typed expressions of the reduction IR out.

Each function returns None where a mistake was reported, and whatever reads a None stays silent, so
that one mistake gives one message and the rest of the kernel is still checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from redlang.errors import AxisError, DTypeError, KernelSyntaxError, RedlangError, UnknownNameError
from redlang.frontend import calls, inlining, macros, monoids, names, reductions, syntax
from redlang.frontend import scope as outside
from redlang.frontend.builtins import BUILTINS, REDUCERS
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.gather import dim_extent, subscript
from redlang.frontend.typing import coerce, promote, require_bool
from redlang.frontend.wording import letters
from redlang.ir.program import Axis, Expr, Literal, Reduce
from redlang.ir.types import BOOL

Called: TypeAlias = Expr | Reduce | tuple[Expr | None, ...] | None
"""What a call gives: a value, a reduction that has no name yet, or the results of a macro."""

_BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "&": "and",
    "|": "or",
    "^": "xor",
    "and": "and",
    "or": "or",
}
_COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def expression(frame: Frame, node: syntax.Expr) -> Expr | None:
    """Return the value of an expression, or None where a mistake was reported."""
    try:
        return _expression(frame, node)
    except RedlangError as error:
        frame.report(error, node.span)
        return None


def _expression(frame: Frame, node: syntax.Expr) -> Expr | None:
    match node:
        case syntax.Number(value):
            return frame.draft.number(value, frame.at(node.span))
        case syntax.Name(text):
            return names.name(frame, text, node.span)
        case syntax.Unary():
            return _unary(frame, node)
        case syntax.Binary():
            return _binary(frame, node)
        case syntax.Compare():
            return _compare(frame, node)
        case syntax.IfElse():
            return _if_else(frame, node)
        case syntax.Call():
            return _single(frame, node, called(frame, node))
        case syntax.Subscript():
            return _subscript(frame, node)
        case _:
            assert_never(node)


def _several(frame: Frame, nodes: Sequence[syntax.Expr]) -> list[Expr] | None:
    """Resolve all of `nodes`; None if any has a mistake."""
    values = [expression(frame, node) for node in nodes]
    good = [value for value in values if value is not None]
    return good if len(good) == len(values) else None


def _unary(frame: Frame, node: syntax.Unary) -> Expr | None:
    operand = expression(frame, node.operand)
    if operand is None:
        return None
    span = frame.at(node.span)
    match node.op:
        case "-":
            # -0.0 is not 0.0, but compares equal: only other literals take the sign in.
            if isinstance(operand, Literal) and operand.value and operand.type.dtype is not BOOL:
                return frame.draft.number(-operand.value, span)
            return frame.draft.apply("neg", operand, span=span)
        case "+":
            if operand.type.dtype is BOOL:
                return coerce(operand, promote([operand.type])[0])
            return operand
        case "not":
            require_bool(operand, "not", "compare it: x == 0")
            return frame.draft.apply("not", operand, span=span)
        case _:
            return frame.draft.apply("not", operand, span=span)


def _binary(frame: Frame, node: syntax.Binary) -> Expr | None:
    operands = _several(frame, (node.left, node.right))
    if operands is None:
        return None
    if node.op in ("and", "or"):
        for operand in operands:
            require_bool(operand, node.op, "compare it: (x != 0)")
    return frame.draft.apply(_BINARY[node.op], *operands, span=frame.at(node.span))


def _compare(frame: Frame, node: syntax.Compare) -> Expr | None:
    operands = _several(frame, node.operands)
    if operands is None:
        return None
    span = frame.at(node.span)
    result: Expr | None = None
    for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
        test = frame.draft.apply(_COMPARE[op], left, right, span=span)
        result = test if result is None else frame.draft.apply("and", result, test, span=span)
    return result


def _if_else(frame: Frame, node: syntax.IfElse) -> Expr | None:
    _several(frame, (node.condition, node.then, node.otherwise))
    raise KernelSyntaxError(
        "x if c else y chooses once, and a kernel chooses for each element",
        hint="write where(c, x, y)",
        span=node.span,
    )


def _single(frame: Frame, node: syntax.Call, value: Called) -> Expr | None:
    """Return the one value of a call that stands in an expression.

    Raises:
        DTypeError: It gives several.
    """
    if isinstance(value, Reduce):
        value = frame.draft.lift(value)
    if not isinstance(value, tuple):
        return value
    if len(value) != 1:
        text = node.function.text
        brackets = f"[{', '.join(binding.name for binding in node.axes)}]" if node.axes else ""
        raise DTypeError(
            f"{text} gives {len(value)} values, and one is needed here",
            hint=f"take them apart first: {letters(len(value))} = {text}{brackets}(...)",
            span=node.span,
        )
    return value[0]


# Subscripts


def _subscript(frame: Frame, node: syntax.Subscript) -> Expr | None:
    _check_called(frame, node)
    array = names.array(frame, node.array.text, node.array.span)
    if array is None or isinstance(array, Tuple):
        for place in node.subscripts:
            if array is None and not isinstance(place, syntax.Name):
                expression(frame, place)
        return None if array is None else _component(array, node)
    places = [_place(frame, place, array, i) for i, place in enumerate(node.subscripts)]
    return subscript(frame.draft, array, places, frame.at(node.span))


def _check_called(frame: Frame, node: syntax.Subscript) -> None:
    """Check that brackets do not end what should be a call: `sum[n] * x`.

    Raises:
        UnknownNameError: They do.
    """
    text = node.array.text
    if text in frame.bindings or text in frame.axes:
        return
    axes = [s.text for s in node.subscripts if isinstance(s, syntax.Name) and s.text in frame.axes]
    shown = f"{text}[{', '.join(axes or ['n'])}]"
    match None if text in BUILTINS else frame.scope.find(text):
        case outside.Macro(function) | outside.Callee(function):
            usage = macros.usage_of(text, axes, function)
        case outside.UserMonoid():
            usage = f"{shown}(x)"
        case _ if text in REDUCERS:
            usage = f"{shown}({names.array_along(frame, axes)}{', 4' if text == 'topk' else ''})"
        case _:
            return
    raise UnknownNameError(
        f"{text} is a function and stands here without its arguments",
        hint=f"they stand in parentheses: {usage}",
        span=node.span,
    )


def _place(frame: Frame, node: syntax.Expr, array: ArrayView, position: int) -> Expr | None:
    """Return one subscript; a bare new name declares its axis, and agrees wherever it stands."""
    if isinstance(node, syntax.Name):
        inside = position < len(array.dims)
        if _is_new(frame, node.text):
            if not inside:
                return None
            _bind_axis(frame, node, array, position)
        elif inside and node.text in frame.named_by_subscript:
            dim = array.dims[position]
            if len(dim.axes) == 1:
                frame.draft.agree(frame.axes[node.text][0], dim.axes[0])
    return expression(frame, node)


def _component(state: Tuple, node: syntax.Subscript) -> Expr:
    """Return one part of a monoid's state, `a[0]`."""
    match node.subscripts:
        case (syntax.Number(int() as position),) if 0 <= position < len(state.parts):
            return state.parts[position]
        case _:
            raise DTypeError(
                f"{node.array.text} has parts 0 to {len(state.parts) - 1}", span=node.span
            )


def _is_new(frame: Frame, text: str) -> bool:
    """Return whether a bare subscript names a new axis.

    What is outside the kernel plays no part: a global `i` left over from a loop must not change
    what `x[i, l]` means.
    """
    known = text in frame.bindings or text in frame.axes or text in BUILTINS
    return not known and "." not in text and not frame.inline


def _bind_axis(frame: Frame, place: syntax.Name, array: ArrayView, position: int) -> None:
    """Declare the axis that a bare new name stands for, with the extent of that dimension."""
    draft, span = frame.draft, frame.at(place.span)
    dim = array.dims[position]
    single = draft.extent(dim.axes[0]) if len(dim.axes) == 1 else None
    extent = single if isinstance(single, int) else dim_extent(draft, dim, span)
    unique = draft.fresh(f"{frame.prefix}{place.text}")
    draft.declare(Axis(unique, extent, span))
    frame.axes[place.text] = (unique,)
    frame.named_by_subscript.add(place.text)


# Calls


def called(frame: Frame, node: syntax.Call) -> Called:
    """Return what a call gives, or None where a mistake was reported."""
    try:
        return _call(frame, node)
    except RedlangError as error:
        frame.report(error, node.span)
        return None


def _call(frame: Frame, node: syntax.Call) -> Called:
    text = node.function.text
    if text not in frame.bindings and text not in frame.axes and text in BUILTINS:
        return _builtin(frame, node)
    entity = names.function(frame, node)
    if isinstance(entity, outside.UserMonoid):
        _check_reduces(frame, node)
        operands, axes = _several(frame, node.arguments), calls.reduced_axes(frame, node)
        if operands is None or axes is None:
            return None
        return monoids.reduce(frame, node, entity, axes, operands)
    arguments = [_argument(frame, argument) for argument in node.arguments]
    keywords = {keyword.name: _argument(frame, keyword.value) for keyword in node.keywords}
    return inlining.inline(frame, node, entity, arguments, keywords)


def _builtin(frame: Frame, node: syntax.Call) -> Expr | Reduce | None:
    text = node.function.text
    if text == "size":
        return calls.size(frame, node)
    if text == "axis":
        raise AxisError(
            "axis declares an axis and stands alone", hint="n = axis(16 * size(p))", span=node.span
        )
    if text in REDUCERS:
        _check_reduces(frame, node)
    arguments = node.arguments
    if text == "topk" and len(arguments) == 2 and names.is_unknown(frame, arguments[1]):
        frame.report(reductions.no_count(node.arguments[1]), node.arguments[1].span)
        _several(frame, arguments[:1])
        operands = None
    else:
        operands = _several(frame, arguments)
    if text in REDUCERS:
        return calls.reduction(frame, node, calls.reduced_axes(frame, node), operands)
    return calls.builtin(frame, node, operands)


def _check_reduces(frame: Frame, node: syntax.Call) -> None:
    if frame.inline:
        raise UnknownNameError("a monoid's methods reduce nothing", span=node.span)


def _argument(frame: Frame, node: syntax.Expr) -> Value:
    """Return an argument of a macro: an array parameter stays one, so that it can be indexed."""
    if isinstance(node, syntax.Name):
        value = frame.bindings.get(node.text)
        if isinstance(value, ArrayView | Tuple):
            return value
    expr = expression(frame, node)
    return Poison() if expr is None else expr
