"""Kernels that kernels call: axes match by name, or as `attention[m:i](q, k, v)` renames them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from redlang.errors import AxisError
from redlang.frontend import names, scalars, syntax
from redlang.frontend.draft import ArrayView, Frame, Poison, Tuple, Value
from redlang.frontend.gather import read
from redlang.frontend.signature import declare_extent
from redlang.frontend.typing import cast
from redlang.frontend.wording import named
from redlang.ir.program import Dim, Expr
from redlang.ir.types import DTYPES
from redlang.source import Span
from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a kernel: who calls, the callee's frame, and the axes that the call renames."""

    caller: Frame
    frame: Frame
    node: syntax.Call
    renamed: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.frame.function.name


def arguments(
    caller: Frame, frame: Frame, node: syntax.Call, given: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the arguments as the callee sees them, and let its frame know their axes.

    Raises:
        AxisError: An argument lacks an axis of its parameter.
        DTypeError: An argument is of another kind than its parameter.
    """
    call = _Call(caller, frame, node, _renamed(caller, frame.function, node))
    return {p.name: _argument(call, p, given[p.name]) for p in frame.function.parameters}


def results(frame: Frame, values: Sequence[Expr | None], span: Span) -> tuple[Expr | None, ...]:
    """Return a callee's results; an element type in its annotation is a cast that it wrote."""
    annotations = frame.function.returns or ()
    cast_to = [DTYPES.get(annotation.dtype or "") for annotation in annotations]
    cast_to += [None] * (len(values) - len(cast_to))
    return tuple(
        value if value is None or dtype is None else cast(value, dtype, span)
        for value, dtype in zip(values, cast_to, strict=False)
    )


def _argument(call: _Call, parameter: syntax.Parameter, value: Value) -> Value:
    span = call.node.span
    match parameter.annotation:
        case syntax.ScalarAnnotation(kind):
            return scalars.weak(call.frame, parameter, kind, value, span)
        case syntax.ArrayAnnotation(str() as dtype, ()):
            return scalars.strong(call.frame, parameter, dtype, value, span)
        case syntax.ArrayAnnotation() as annotation:
            return _array(call, parameter, annotation, value)
        case None:
            raise AxisError(
                f"parameter {parameter.name} of kernel {call.name} has no annotation", span=span
            )


def _renamed(caller: Frame, function: syntax.Function, node: syntax.Call) -> dict[str, str]:
    """Return the caller's axis for each axis that the call renames."""
    own = _own_axes(function)
    renamed: dict[str, str] = {}
    for binding in node.axes:
        if binding.name not in own:
            raise AxisError(
                f"kernel {function.name} has no axis {binding.name}",
                hint=f"its axes are {', '.join(own)}; {function.name}[{own[0]}:i](...) renames one"
                if own
                else "",
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


def _own_axes(function: syntax.Function) -> list[str]:
    specs = (spec for parameter in function.parameters for spec in _specs(parameter))
    return list(dict.fromkeys(spec.name for spec in specs if spec.name is not None))


def _specs(parameter: syntax.Parameter) -> Iterator[syntax.AxisSpec]:
    if isinstance(parameter.annotation, syntax.ArrayAnnotation):
        for dim in parameter.annotation.dims:
            yield from dim.axes


def _array(
    call: _Call, parameter: syntax.Parameter, annotation: syntax.ArrayAnnotation, value: Value
) -> Value:
    """Return an argument as a kernel's array parameter sees it: its axes matched by name."""
    draft, span = call.caller.draft, call.caller.at(call.node.span)
    if isinstance(value, Poison | Tuple):
        draft.doubtful = True
        return Poison()
    expr = read(draft, value, span) if isinstance(value, ArrayView) else value
    have = expr.type.axes
    dims = tuple(
        Dim(tuple(_match(call, parameter, spec, have) for spec in dim.axes))
        for dim in annotation.dims
    )
    if annotation.dtype is not None:
        scalars.check_kind(call.frame, parameter, annotation.dtype, expr)
    listed = sorted(axis for dim in dims for axis in dim.axes)
    if isinstance(value, ArrayView) and listed == sorted(value.param.axes):
        return ArrayView(value.param, dims)
    return expr


def _match(
    call: _Call, parameter: syntax.Parameter, spec: syntax.AxisSpec, have: Sequence[str]
) -> str:
    """Return the caller's axis for one axis of a parameter, and let the callee know it."""
    draft = call.caller.draft
    found: str | None
    if spec.name is None:
        own = str(spec.extent)
        found = next((axis for axis in have if draft.extent(axis) == spec.extent), None)
    else:
        own = spec.name
        axes = call.caller.axes.get(own, (own,))
        found = call.renamed.get(own) or (axes[0] if len(axes) == 1 else None)
    if found is None or found not in have:
        others = (axis for axis in named(have) if axis not in _own_axes(call.frame.function))
        other = next(others, None)
        raise AxisError(
            f"{parameter.name} of {call.name} has axis {own}, and its argument does not "
            f"(it has {' '.join(have) or 'no axes'})",
            hint=f"rename the kernel's axis: {call.name}[{own}:{other}](...)"
            if other and spec.name
            else "",
            span=call.node.span,
        )
    if spec.extent is not None:
        declare_extent(draft, found, spec.extent, call.caller.at(call.node.span))
    call.frame.axes[own] = (found,)
    return found
