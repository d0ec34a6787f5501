"""Calls of builtins: element functions, casts, `where`, `fill`, `size`, and reductions.

Operands come resolved; what is checked here is that the call has a meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.errors import (
    AbsenceError,
    AxisError,
    DTypeError,
    KernelSyntaxError,
    RedlangError,
    UnknownNameError,
)
from redlang.frontend import names, reductions, syntax
from redlang.frontend.builtins import ELEMENTS, SCALARS
from redlang.frontend.draft import Frame
from redlang.frontend.signature import check_name
from redlang.frontend.typing import cast, coerce, promote, require_bool
from redlang.frontend.wording import are, counted, letters, named
from redlang.ir import walk
from redlang.ir.program import ArrayParam, Axis, Expr, Index, Load, Reduce, Ref
from redlang.ir.types import BOOL, DTYPES
from redlang.source import Span


def builtin(frame: Frame, node: syntax.Call, operands: Sequence[Expr] | None) -> Expr | None:
    """Return the value of a builtin that is no reduction; None if an operand has a mistake.

    Raises:
        RedlangError: The call has no meaning.
    """
    text, span = node.function.text, frame.at(node.span)
    if node.axes:
        raise AxisError(
            f"{text} reduces nothing and takes no axes",
            hint=f"it acts on each element: {_usage(text)}",
            span=node.axes[0].span,
        )
    if node.keywords:
        problem, hint = f"{text} takes no keywords", f"give them by position: {_usage(text)}"
        raise KernelSyntaxError(problem, hint=hint, span=node.keywords[0].span)
    if text in SCALARS:
        raise UnknownNameError(
            f"{text} is for annotations; a cast names its element type",
            hint=f"{SCALARS[text]}(x)",
            span=node.function.span,
        )
    _check_arity(text, len(node.arguments), node.span)
    if operands is None:
        return None
    if text in DTYPES:
        return cast(operands[0], DTYPES[text], span)
    if text == "fill":
        return _fill(frame, node, operands[0], operands[1], span)
    if text == "where" and len(operands) == 2:
        require_bool(operands[0], "the condition of where", "compare it: where(c != 0, a)")
        return frame.draft.build.mask(operands[0], operands[1], span=span)
    return frame.draft.apply(text, *operands, span=span)


def _check_arity(text: str, number: int, span: Span) -> None:
    arity = {"fill": (2,), "where": (2, 3)}.get(text, (ELEMENTS.get(text, 1),))
    if number in arity:
        return
    hint = _usage(text)
    if text in ("minimum", "maximum") and number == 1:
        hint = f"to reduce an axis write {text[:3]}[n](x)"
    elif text == "fill":
        hint = "fill(x, 0) gives absent elements the value 0"
    wanted = " or ".join((*map(str, arity[:-1]), counted(arity[-1], "argument")))
    problem = f"{text} takes {wanted}, and {number} {are(number)} given"
    raise DTypeError(problem, hint=hint, span=span)


def _usage(text: str) -> str:
    """Return how an element function is called."""
    named = {"clip": "x, low, high", "where": "c, a, b", "fill": "x, 0"}
    arity = ELEMENTS.get(text, 1)
    return f"{text}({named.get(text) or ('x' if arity == 1 else letters(arity))})"


def _fill(frame: Frame, node: syntax.Call, operand: Expr, value: Expr, span: Span) -> Expr:
    """Return `fill(operand, value)`; where nothing can be absent it is the operand.

    Raises:
        AbsenceError: The kernel's own text fills what is never absent. In a macro that depends on
            the call.
    """
    dtype, _ = promote([operand.type, value.type])
    if operand.type.dtype is value.type.dtype is BOOL:
        dtype = BOOL
    operand = coerce(operand, dtype)
    if operand.type.absent:
        return frame.draft.build.fill(operand, coerce(value, dtype), span=span)
    hint = _instead(frame, operand, node.arguments[1])
    if hint is not None and frame.called is None and not frame.inline and not frame.draft.divided:
        what = " ".join(_text(frame, node.arguments[0]).split())
        problem = f"fill has nothing to fill: {what} is absent nowhere"
        raise AbsenceError(problem, hint=hint, span=span)
    return operand


def _instead(frame: Frame, operand: Expr, other: syntax.Expr) -> str | None:
    """Say what to write for a fill of something that is never absent.

    None where it reads an array at computed places: that these lie inside is found by proof, and
    nobody needs to know how far proofs reach.
    """
    hint = "nothing in it is masked, so leave fill out; a NaN is replaced by where(isnan(x), 0, x)"
    nodes, names = list(walk.nodes(operand)), set[str]()
    while nodes:
        node = nodes.pop()
        if isinstance(node, Load) and not _is_plain(frame, node):
            return None
        if not isinstance(node, Ref) or node.name in names:
            continue
        names.add(node.name)
        value = frame.draft.definitions[node.name].value
        if not isinstance(value, Reduce):
            nodes += walk.nodes(value)
        elif any(part.type.absent for part in value.operands):
            hint = (
                "a reduction passes over absent elements and has a value over nothing too; for "
                f"another one write where(count[{', '.join(value.axes)}](mask) > 0, ..., "
                f"{_text(frame, other)})"
            )
    return hint


def _is_plain(frame: Frame, load: Load) -> bool:
    """Return whether an array is read at its own indices."""
    param = frame.draft.params[load.array]
    places = tuple(part.axis if isinstance(part, Index) else None for part in load.subscripts)
    return isinstance(param, ArrayParam) and places == param.axes


def _text(frame: Frame, node: syntax.Expr) -> str:
    return frame.source.text[node.span.start : node.span.stop]


def size(frame: Frame, node: syntax.Call) -> Expr:
    """Return `size(n)`, for several axes the product of their extents.

    Raises:
        AxisError: An argument is no axis.
    """
    axes: list[str] = []
    for argument in node.arguments:
        if not isinstance(argument, syntax.Name) or argument.text not in frame.axes:
            what = f"{argument.text} is" if isinstance(argument, syntax.Name) else "this is"
            known = named(frame.axes)
            raise AxisError(
                f"size takes an axis, and {what} none",
                hint=f"axes are {', '.join(known)}" if known else "",
                span=argument.span,
            )
        axes += names.axes_of(frame, argument.text, argument.span)
    if not axes or node.axes or node.keywords:
        raise AxisError("size takes an axis in parentheses", hint="size(n)", span=node.span)
    return frame.draft.product(axes, frame.at(node.span))


def reduction(
    frame: Frame, node: syntax.Call, axes: Sequence[str] | None, operands: Sequence[Expr] | None
) -> Expr | Reduce | None:
    """Return a builtin reduction, or the value of a mean; None if a part has a mistake.

    Raises:
        RedlangError: The call has no meaning.
    """
    op, span = node.function.text, frame.at(node.span)
    if node.keywords:
        raise KernelSyntaxError(
            f"{op} takes no keywords",
            hint=_without_keyword(op, node.keywords[0].name, operands),
            span=node.keywords[0].span,
        )
    wanted, number = (2 if op == "topk" else 1), len(node.arguments)
    if number != wanted:
        hint = "topk[e](p, 8)" if op == "topk" else f"{op}[n](x)"
        if op in ("max", "min") and number > 1 and not node.axes:
            hint = f"of several values it is {op}imum(a, b)"
        raise DTypeError(
            f"{op} takes {counted(wanted, 'argument')}, and {number} {are(number)} given",
            hint=hint,
            span=node.span,
        )
    new_axis = _new_axis(frame, node) if op == "topk" else None
    if operands is None or axes is None:
        if new_axis is not None and new_axis not in frame.draft.axes:
            # Declared all the same, so that what reads it stays silent.
            frame.draft.declare(Axis(new_axis, 1, span))
        return None
    if op == "mean":
        return reductions.mean(frame.draft, axes, operands[0], span)
    if op == "topk":
        k = names.settled(frame, operands[1])
        return reductions.topk(frame.draft, axes, new_axis, operands[0], k, span)
    return reductions.reduce(frame.draft, op, axes, operands[0], span)


def _without_keyword(op: str, keyword: str, operands: Sequence[Expr] | None) -> str:
    """Return how redlang says what a keyword of NumPy's or torch's reductions does."""
    axes = operands[0].type.axes if operands else ()
    axis = axes[-1] if axes else "n"
    match keyword:
        case "axis" | "dim" | "axes":
            known = f"; the operand has {' '.join(axes)}" if axes else ""
            return f"the axis is named behind {op}: {op}[{axis}](...){known}"
        case "where":
            return f"leave elements out by a mask: {op}[{axis}](where(c, x))"
        case "keepdims" | "keepdim":
            return "values meet by the names of their axes, so none has to be kept"
        case "dtype":
            return f"cast the operand: {op}[{axis}](f64(x))"
        case "k" if op == "topk":
            return f"give it by position: topk[{axis}](x, 8)"
        case _:
            return f"{op}[{axis}](x) is all there is"


def reduced_axes(frame: Frame, node: syntax.Call) -> list[str] | None:
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
        raise AxisError(f"{target} is a value and cannot name an axis", span=node.axes[-1].span)
    check_name(target, "axis", node.axes[-1].span)
    unique = frame.draft.fresh(f"{frame.prefix}{target}")
    frame.axes[target] = (unique,)
    return unique
