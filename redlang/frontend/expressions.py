"""Expressions and statements: Syntax in, typed expressions of the reduction IR out.

Each function returns None where a mistake was reported, and whatever reads a None stays silent, so
that one mistake gives one message and the rest of the kernel is still checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard, assert_never

from redlang.errors import (
    AxisError,
    DTypeError,
    KernelSyntaxError,
    RedlangError,
    UnknownNameError,
)
from redlang.frontend import macros, monoids, names, reductions, syntax
from redlang.frontend import scope as outside
from redlang.frontend.builtins import BUILTINS, ELEMENTS, REDUCERS, SCALARS
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.extents import axis_extent
from redlang.frontend.gather import dim_extent, subscript
from redlang.frontend.signature import check_name
from redlang.frontend.typing import cast, coerce, promote, require_bool
from redlang.ir.program import Axis, Expr, Literal, Reduce, Ref
from redlang.ir.types import BOOL, DTYPES
from redlang.source import Span

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


# Statements


def body(frame: Frame) -> tuple[tuple[Expr | None, ...], syntax.Return] | None:
    """Resolve the statements of a body; return its results, or None where it has no return."""
    returned: tuple[tuple[Expr | None, ...], syntax.Return] | None = None
    for statement in frame.function.body:
        try:
            if returned is not None:
                raise KernelSyntaxError("nothing can follow return", span=statement.span)
            match statement:
                case syntax.Assign():
                    _assign(frame, statement)
                case syntax.Return():
                    returned = _returned(frame, statement), statement
                case _:
                    assert_never(statement)
        except RedlangError as error:
            frame.report(error, statement.span)
    if returned is None:
        span = frame.function.span
        frame.report(KernelSyntaxError(f"{frame.function.name} returns nothing", span=span), span)
    return returned


def _returned(frame: Frame, statement: syntax.Return) -> tuple[Expr | None, ...]:
    if len(statement.values) == 1 and isinstance(statement.values[0], syntax.Call):
        return _all_results(frame, statement.values[0])
    return tuple(expression(frame, value) for value in statement.values)


def _all_results(frame: Frame, call: syntax.Call) -> tuple[Expr | None, ...]:
    value = _called(frame, call)
    if isinstance(value, Reduce):
        return frame.draft.lift(value)
    return value if isinstance(value, tuple) else (value,)


def _assign(frame: Frame, statement: syntax.Assign) -> None:
    targets = statement.targets
    values: Sequence[Value] = [Poison()] * len(targets)
    for target in targets:
        if not _assignable(frame, target):
            if not _declares_axis(statement.value):
                expression(frame, statement.value)
            return
    try:
        if _declares_axis(statement.value):
            _declare_axis(frame, targets, statement.value)
            return
        values = _assigned(frame, statement)
    except RedlangError as error:
        frame.report(error, statement.span)
    for target, value in zip(targets, values, strict=True):
        frame.bindings[target.text] = value


def _declares_axis(node: syntax.Expr) -> TypeGuard[syntax.Call]:
    return isinstance(node, syntax.Call) and node.function.text == "axis"


def _assignable(frame: Frame, target: syntax.Name) -> bool:
    """Report an assignment to something that is no local."""
    text, span = target.text, target.span
    error: RedlangError | None = None
    if "." in text:
        error = UnknownNameError(f"{text} cannot be assigned; a local is a plain name", span=span)
    elif text in frame.axes:
        error = AxisError(
            f"{text} is an axis and cannot be assigned",
            hint="parameters, axes and locals share one namespace; choose another name",
            span=span,
        )
    elif text in frame.fixed:
        error = UnknownNameError(
            f"{text} is a parameter and cannot be assigned",
            hint=f"choose another name, such as {text}2",
            span=span,
        )
    else:
        try:
            check_name(text, "local", span)
        except RedlangError as reserved:
            error = reserved
    if error is not None:
        frame.report(error, span)
    return error is None


def _assigned(frame: Frame, statement: syntax.Assign) -> Sequence[Value]:
    """Return one value for each target of an assignment."""
    targets, node = statement.targets, statement.value
    if isinstance(node, syntax.Name) and isinstance(frame.bindings.get(node.text), Tuple):
        state = frame.bindings[node.text]
        assert isinstance(state, Tuple)
        if len(targets) == 1:
            return [state]
        _count(len(targets), len(state.parts), node.span)
        return state.parts
    value = _called(frame, node) if isinstance(node, syntax.Call) else expression(frame, node)
    if value is None:
        return [Poison()] * len(targets)
    if isinstance(value, Reduce):
        _count(len(targets), len(value.types), node.span, value.op)
        named = [f"{frame.prefix}{target.text}" for target in targets]
        return frame.draft.define_reduce(named, value, frame.at(statement.span))
    parts = value if isinstance(value, tuple) else (value,)
    if len(targets) == 1 and len(parts) == 1 and isinstance(node, syntax.Name):
        source = frame.bindings.get(node.text)
        if isinstance(source, ArrayView):
            return [source]
    _count(len(targets), len(parts), node.span)
    return [
        Poison() if part is None else _local(frame, target, part)
        for target, part in zip(targets, parts, strict=True)
    ]


def _local(frame: Frame, target: syntax.Name, value: Expr) -> Expr:
    """Give a value its local's name; what is a name or a literal already stays as it is."""
    if frame.inline or isinstance(value, Literal | Ref):
        return value
    return frame.draft.define(f"{frame.prefix}{target.text}", value, frame.at(target.span))


def _count(targets: int, values: int, span: Span, op: str = "") -> None:
    if targets == values:
        return
    hint = ""
    if op.startswith("arg") and values > 1:
        hint = f"{op} over {values} axes gives one index for each"
    elif op == "topk":
        hint = "topk gives values and indices: v, i = topk[e](p, 8)"
    one = "1 value is" if values == 1 else f"{values} values are"
    raise DTypeError(
        f"{one} assigned to {targets} {'name' if targets == 1 else 'names'}", hint=hint, span=span
    )


def _declare_axis(frame: Frame, targets: Sequence[syntax.Name], call: syntax.Call) -> None:
    """Declare the axis of `n = axis(16 * size(p))`."""
    draft = frame.draft
    if len(targets) != 1 or len(call.arguments) != 1 or call.keywords or call.axes:
        raise AxisError(
            "axis declares one axis from one extent", hint="n = axis(16 * size(p))", span=call.span
        )
    target = targets[0]
    if target.text in frame.bindings:
        raise AxisError(f"{target.text} is a local already and cannot be an axis", span=target.span)
    value = expression(frame, call.arguments[0])
    frame.axes[target.text] = (unique,) = (draft.fresh(f"{frame.prefix}{target.text}"),)
    extent = axis_extent(value) if value is not None else None
    draft.declare(Axis(unique, extent, frame.at(target.span)))


# Expressions


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
            return _single(frame, node, _called(frame, node))
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
    if node.op not in _BINARY:
        raise KernelSyntaxError(
            f"{node.op} has no meaning here",
            hint="a sum of products is sum[d](a * b)" if node.op == "@" else "",
            span=node.span,
        )
    return frame.draft.apply(_BINARY[node.op], *operands, span=frame.at(node.span))


def _compare(frame: Frame, node: syntax.Compare) -> Expr | None:
    for operand in node.operands:
        _check_binding(node, operand)
    operands = _several(frame, node.operands)
    if operands is None:
        return None
    span = frame.at(node.span)
    result: Expr | None = None
    for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
        test = frame.draft.apply(_COMPARE[op], left, right, span=span)
        result = test if result is None else frame.draft.apply("and", result, test, span=span)
    return result


def _check_binding(compare: syntax.Compare, operand: syntax.Expr) -> None:
    """Refuse `a < b & c < d`, which Python reads as `a < (b & c) < d`.

    Raises:
        KernelSyntaxError: A bitwise operator without parentheses stands beside a comparison.
    """
    op = ""
    if isinstance(operand, syntax.Binary) and operand.op in "&|^" and not operand.parenthesised:
        op = operand.op
    # Parentheses belong to a node's span: ~a < b starts where its operand does, (~a) < b does not.
    if isinstance(operand, syntax.Unary) and operand.op == "~" and _bare_first(compare, operand):
        op = "~"
    if op:
        example = "~(a < b)" if op == "~" else f"(a < b) {op} (c < d)"
        raise KernelSyntaxError(
            f"{op} binds tighter than the comparison beside it",
            hint=f"put the comparison in parentheses: {example}",
            span=operand.span,
        )


def _bare_first(compare: syntax.Compare, operand: syntax.Unary) -> bool:
    return (
        operand is compare.operands[0]
        and operand.span.stop != operand.span.start
        and (operand.span.start == operand.operand.span.start - 1)
    )


def _if_else(frame: Frame, node: syntax.IfElse) -> Expr | None:
    _several(frame, (node.condition, node.then, node.otherwise))
    raise KernelSyntaxError(
        "x if c else y chooses once, and a kernel chooses for each element",
        hint="write where(c, x, y)",
        span=node.span,
    )


def _single(frame: Frame, node: syntax.Call, value: Called) -> Expr | None:
    if isinstance(value, Reduce):
        refs: tuple[Expr | None, ...] = frame.draft.lift(value)
    elif isinstance(value, tuple):
        refs = value
    else:
        return value
    if len(refs) != 1:
        called = ", ".join("abcdefgh"[: len(refs)])
        raise DTypeError(
            f"{node.function.text} gives {len(refs)} values, and one is needed here",
            hint=f"take them apart first: {called} = {node.function.text}...",
            span=node.span,
        )
    return refs[0]


# Subscripts


def _subscript(frame: Frame, node: syntax.Subscript) -> Expr | None:
    array = names.array(frame, node.array.text, node.array.span)
    if array is None or isinstance(array, Tuple):
        for place in node.subscripts:
            if array is None and not isinstance(place, syntax.Name):
                expression(frame, place)
        return None if array is None else _component(array, node)
    places: list[Expr | None] = []
    for i, place in enumerate(node.subscripts):
        if isinstance(place, syntax.Name) and _is_new(frame, place.text):
            if i < len(array.dims):
                _bind_axis(frame, place, array, i)
            else:
                places.append(None)
                continue
        places.append(expression(frame, place))
    return subscript(frame.draft, array, places, frame.at(node.span))


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


def _called(frame: Frame, node: syntax.Call) -> Called:
    try:
        return _call(frame, node)
    except RedlangError as error:
        frame.report(error, node.span)
        return None


def _call(frame: Frame, node: syntax.Call) -> Called:
    text = node.function.text
    local = text in frame.bindings or text in frame.axes
    if not local and text in REDUCERS:
        return _reduction(frame, node)
    if not local and text in BUILTINS:
        if node.axes:
            raise AxisError(f"{text} reduces nothing and takes no axes", span=node.axes[0].span)
        return _builtin(frame, node)
    entity = names.function(frame, text, node.function.span)
    if isinstance(entity, outside.UserMonoid):
        operands = _several(frame, node.arguments)
        axes = _axes(frame, node)
        if operands is None or axes is None:
            return None
        return monoids.reduce(frame, node, entity, axes, operands, body)
    arguments = [_argument(frame, argument) for argument in node.arguments]
    keywords = {keyword.name: _argument(frame, keyword.value) for keyword in node.keywords}
    return macros.inline(frame, node, entity, arguments, keywords, body)


def _argument(frame: Frame, node: syntax.Expr) -> Value:
    """Return an argument of a macro: an array parameter stays one, so that it can be indexed."""
    if isinstance(node, syntax.Name) and isinstance(
        frame.bindings.get(node.text), ArrayView | Tuple
    ):
        return frame.bindings[node.text]
    value = expression(frame, node)
    return Poison() if value is None else value


def _builtin(frame: Frame, node: syntax.Call) -> Expr | None:
    text, span = node.function.text, frame.at(node.span)
    if node.keywords:
        raise KernelSyntaxError(f"{text} takes no keywords", hint="", span=node.keywords[0].span)
    if text == "size":
        return _size(frame, node)
    if text == "axis":
        raise AxisError(
            "axis declares an axis and stands alone", hint="n = axis(16 * size(p))", span=node.span
        )
    operands = _several(frame, node.arguments)
    arity = {"fill": (2,), "where": (2, 3)}.get(text, (ELEMENTS.get(text, 1),))
    if text in SCALARS:
        raise UnknownNameError(
            f"{text} is for annotations; a cast names its element type",
            hint=f"{SCALARS[text]}(x)",
            span=node.function.span,
        )
    if len(node.arguments) not in arity:
        wanted = " or ".join(map(str, arity))
        noun = "argument" if wanted == "1" else "arguments"
        raise DTypeError(
            f"{text} takes {wanted} {noun}, and {len(node.arguments)} are given".replace(
                "1 are", "1 is"
            ),
            hint=_arity_hint(text, len(node.arguments)),
            span=node.span,
        )
    if operands is None:
        return None
    if text in DTYPES:
        return cast(operands[0], DTYPES[text], span)
    if text == "fill":
        return _fill(frame, operands, span)
    if text == "where" and len(operands) == 2:
        require_bool(operands[0], "the condition of where", "compare it: where(c != 0, a)")
        return frame.draft.build.mask(operands[0], operands[1], span=span)
    return frame.draft.apply(text, *operands, span=span)


def _arity_hint(text: str, given: int) -> str:
    if text in ("minimum", "maximum") and given == 1:
        return f"to reduce an axis write {text[:3]}[n](x)"
    return "fill(x, 0) gives absent elements the value 0" if text == "fill" else ""


def _fill(frame: Frame, operands: Sequence[Expr], span: Span) -> Expr:
    operand, value = operands
    dtype, _ = promote([operand.type, value.type])
    if operand.type.dtype is value.type.dtype is BOOL:
        dtype = BOOL
    if not operand.type.absent:
        raise DTypeError(
            "fill gives absent elements a value, and nothing is absent here",
            hint="leave fill out",
            span=span,
        )
    return frame.draft.build.fill(coerce(operand, dtype), coerce(value, dtype), span=span)


def _size(frame: Frame, node: syntax.Call) -> Expr:
    axes: list[str] = []
    for argument in node.arguments:
        if not isinstance(argument, syntax.Name) or argument.text not in frame.axes:
            text = argument.text if isinstance(argument, syntax.Name) else "this"
            raise AxisError(
                f"size takes an axis, and {text} is none",
                hint=f"axes are {', '.join(frame.axes)}" if frame.axes else "",
                span=argument.span,
            )
        axes += names.axes_of(frame, argument.text, argument.span)
    if not axes:
        raise AxisError("size takes an axis: size(n)", span=node.span)
    return frame.draft.product(axes, frame.at(node.span))


def _axes(frame: Frame, node: syntax.Call) -> list[str] | None:
    """Return the axes between the brackets of a reduction; None if one has a mistake."""
    axes: list[str] = []
    good = True
    for binding in node.axes:
        try:
            if binding.target is not None and node.function.text != "topk":
                problem = f"{node.function.text} makes no new axis"
                raise AxisError(problem, hint="only topk does", span=binding.span)
            axes += names.axes_of(frame, binding.name, binding.span)
        except RedlangError as error:
            frame.report(error, binding.span)
            good = False
    return axes if good else None


def _reduction(frame: Frame, node: syntax.Call) -> Called:
    op, span = node.function.text, frame.at(node.span)
    axes = _axes(frame, node)
    operands = _several(frame, node.arguments)
    wanted = 2 if op == "topk" else 1
    if node.keywords:
        raise KernelSyntaxError(f"{op} takes no keywords", span=node.keywords[0].span)
    if len(node.arguments) != wanted:
        example = "topk[e](p, 8)" if op == "topk" else f"{op}[n](x)"
        hint = example
        if op in ("max", "min") and len(node.arguments) > 1 and not node.axes:
            hint = f"of several values it is {op}imum(a, b)"
        raise DTypeError(
            f"{op} takes {wanted} {'argument' if wanted == 1 else 'arguments'}, and "
            f"{len(node.arguments)} {'is' if len(node.arguments) == 1 else 'are'} given",
            hint=hint,
            span=node.span,
        )
    if operands is None or axes is None:
        return None
    if op == "mean":
        return reductions.mean(frame.draft, axes, operands[0], span)
    if op == "topk":
        new_axis = _new_axis(frame, node)
        return reductions.topk(frame.draft, axes, new_axis, operands[0], operands[1], span)
    return reductions.reduce(frame.draft, op, axes, operands[0], span)


def _new_axis(frame: Frame, node: syntax.Call) -> str | None:
    """Return the axis that `topk[e:j]` makes, declared or not; None for an anonymous one."""
    targets = [binding.target for binding in node.axes if binding.target is not None]
    if not targets:
        return None
    if len(targets) > 1 or node.axes[-1].target is None:
        raise AxisError("topk makes one axis, named behind the last: topk[h, w:j]", span=node.span)
    target = targets[0]
    if target in frame.axes:
        if len(frame.axes[target]) != 1:
            raise AxisError(f"{target} stands for several axes here", span=node.span)
        return frame.axes[target][0]
    if target in frame.bindings:
        raise AxisError(f"{target} is a value and cannot name an axis", span=node.span)
    check_name(target, "axis", node.span)
    frame.axes[target] = (unique,) = (frame.draft.fresh(f"{frame.prefix}{target}"),)
    return unique
