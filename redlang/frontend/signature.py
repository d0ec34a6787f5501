"""The signature: parameters, the axes that they declare, and their extents."""

from __future__ import annotations

from collections.abc import Iterator

from redlang.errors import AxisError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend import syntax
from redlang.frontend.annotations import element_hint
from redlang.frontend.builtins import BUILTINS, ELEMENT_TYPES, did_you_mean
from redlang.frontend.draft import ArrayView, Draft, Frame, Poison, Value
from redlang.frontend.gather import ragged_axis
from redlang.ir.program import ArrayParam, Axis, Dim, Scalar, ScalarParam
from redlang.ir.types import BOOL, DTYPES, F32, F64, I64, DType, Type, compute_type
from redlang.source import Span

_WEAK: dict[str, DType] = {"bool": BOOL, "int": I64, "float": F64}
"""Storage types of weak scalars by the kind that an annotation or a number has."""


def declare_parameters(frame: Frame) -> None:
    """Declare a kernel's parameters and axes; note what is wrong with them."""
    function = frame.function
    axis_names = {spec.name for spec in _axis_specs(function) if spec.name is not None}
    frame.draft.real = _weak_float(frame)
    for parameter in function.parameters:
        value: Value = Poison()
        try:
            check_name(parameter.name, "parameter", parameter.span)
            if parameter.name in axis_names:
                raise AxisError(
                    f"{parameter.name} is both a parameter and an axis",
                    hint="parameters, axes and locals share one namespace; rename one of them",
                    span=parameter.span,
                )
            value = _parameter(frame, parameter)
        except RedlangError as error:
            frame.report(error, parameter.span)
            frame.draft.doubtful = True
        frame.bindings[parameter.name] = value
        frame.fixed.add(parameter.name)
    if not frame.draft.doubtful:
        _check_decided(frame)


def _check_decided(frame: Frame) -> None:
    """Report composite dimensions of which no call could tell how they split."""
    composites: list[tuple[Dim, Span]] = []
    draft = frame.draft
    known = {axis.name for axis in draft.axes.values() if axis.extent is not None}
    for parameter in frame.function.parameters:
        array = draft.params[parameter.name]
        if isinstance(array, ArrayParam) and isinstance(
            parameter.annotation, syntax.ArrayAnnotation
        ):
            for dim, spec in zip(array.dims, parameter.annotation.dims, strict=True):
                if len(dim.axes) == 1:
                    known.update(dim.axes)
                elif ragged_axis(dim) not in draft.axes:
                    composites.append((dim, spec.span))
    for _ in composites:
        # One composite dimension may decide an axis of another, in any order.
        for dim, _span in composites:
            unknown = set(dim.axes) - known
            known |= unknown if len(unknown) == 1 else set()
    for dim, span in composites:
        if not known.issuperset(dim.axes):
            others = [axis for axis in dim.axes if axis not in known][1:]
            shown = (f"{axis}=8" if axis in others else axis for axis in dim.axes)
            error = AxisError(
                f"no argument decides how {ragged_axis(dim)} splits",
                hint=f"write all but one extent as a number, as in ({' '.join(shown)}), or add "
                f'an array that has such an axis, even for that only: sizes: "{" ".join(others)}"',
            )
            frame.report(error, span)


def check_name(name: str, what: str, span: Span) -> None:
    """Check that a name may be given to a parameter, axis or local.

    Raises:
        UnknownNameError: It is a builtin.
    """
    if name in BUILTINS:
        article = "an" if what == "axis" else "a"
        raise UnknownNameError(
            f"{name} is a builtin of redlang and cannot name {article} {what}",
            hint=f"choose another name, such as {name}_",
            span=span,
        )


def element_type(name: str, span: Span, hint: str = "") -> DType:
    """Return the element type called `name`; `hint` says what to write where there is none.

    Raises:
        DTypeError: There is none.
    """
    if name not in DTYPES:
        raise DTypeError(
            f"{name} is no element type",
            hint=hint or did_you_mean(name, DTYPES) or f"element types are {ELEMENT_TYPES}",
            span=span,
        )
    return DTYPES[name]


def _axis_specs(function: syntax.Function) -> Iterator[syntax.AxisSpec]:
    for parameter in function.parameters:
        if isinstance(parameter.annotation, syntax.ArrayAnnotation):
            for dim in parameter.annotation.dims:
                yield from dim.axes


def _weak_float(frame: Frame) -> DType:
    """Return f64 if the kernel has an f64 array, else f32."""
    for parameter in frame.function.parameters:
        annotation = parameter.annotation
        if not isinstance(annotation, syntax.ArrayAnnotation):
            continue
        if annotation.dtype is None:
            dtype = frame.draft.signature.dtypes.get(parameter.name)
        else:
            dtype = DTYPES.get(annotation.dtype) if annotation.dims else None
        if dtype is F64:
            return F64
    return F32


def _parameter(frame: Frame, parameter: syntax.Parameter) -> Value:
    draft, annotation = frame.draft, parameter.annotation
    match annotation:
        case None:
            raise AxisError(
                f"parameter {parameter.name} has no annotation",
                hint=f'list its axes, {parameter.name}: "m n", or its kind, '
                f"{parameter.name}: float",
                span=parameter.span,
            )
        case syntax.ScalarAnnotation(kind):
            return _scalar(draft, parameter, _WEAK[kind], weak=True)
        case syntax.ArrayAnnotation(str() as name, ()):
            dtype = element_type(name, annotation.span, element_hint(annotation))
            return _scalar(draft, parameter, dtype, weak=False)
        case _:
            return _array(frame, parameter, annotation)


def _scalar(draft: Draft, parameter: syntax.Parameter, dtype: DType, *, weak: bool) -> Value:
    default = _default(parameter, dtype.kind)
    scalar = ScalarParam(parameter.name, dtype, weak, default=default, span=parameter.span)
    draft.params[parameter.name] = scalar
    return scalar_value(draft, scalar, parameter.span)


def _array(frame: Frame, parameter: syntax.Parameter, annotation: syntax.ArrayAnnotation) -> Value:
    draft = frame.draft
    dtype = draft.signature.dtypes.get(parameter.name, F32)
    dims = _dims(frame, annotation)
    if annotation.dtype is not None:
        dtype = element_type(annotation.dtype, annotation.span, element_hint(annotation))
    if parameter.default is not None:
        raise DTypeError(
            f"{parameter.name} is an array and cannot have a default",
            hint=f"a number with a default is {parameter.name}: float = {parameter.default!r}",
            span=parameter.span,
        )
    if dims is None:
        return Poison()
    array = ArrayParam(parameter.name, dims, dtype, parameter.span)
    draft.params[parameter.name] = array
    return ArrayView(array, dims)


def scalar_value(draft: Draft, param: ScalarParam, span: Span) -> Scalar:
    """Return a scalar parameter as a value; a weak float has the kernel's weak float type."""
    dtype = compute_type(param.dtype)
    if param.weak and dtype.kind == "float":
        dtype = draft.real
    return Scalar(param.name, Type(dtype, weak=param.weak), span)


def is_of_kind(default: bool | int | float, kind: str) -> bool:
    """Tell whether a scalar of a kind (`bool`, `float`, or some integers) may have a default."""
    if kind == "bool":
        return isinstance(default, bool)
    return not isinstance(default, bool) and (kind == "float" or isinstance(default, int))


def _default(parameter: syntax.Parameter, kind: str) -> bool | int | float | None:
    """Return a scalar's default in its kind.

    Raises:
        DTypeError: It has another kind, and would not keep its value.
    """
    value = parameter.default
    if value is None:
        return None
    if not is_of_kind(value, kind):
        wanted = {"bool": "a bool", "float": "a float"}.get(kind, "an integer")
        raise DTypeError(
            f"{parameter.name} is {wanted}, and its default is {value!r}",
            hint="a default is a number of the parameter's kind",
            span=parameter.span,
        )
    return float(value) if kind == "float" else value


def _dims(frame: Frame, annotation: syntax.ArrayAnnotation) -> tuple[Dim, ...] | None:
    """Declare the axes of one annotation and return its dimensions; None if any is wrong."""
    dims: list[Dim] = []
    seen: set[str] = set()
    good = True
    for spec in annotation.dims:
        names = []
        for axis in spec.axes:
            try:
                names.append(_axis(frame, axis, seen))
            except RedlangError as error:
                frame.report(error, axis.span)
                frame.draft.doubtful = True
                good = False
        dims.append(Dim(tuple(names)))
    if not good:
        return None
    for dim, spec in zip(dims, annotation.dims, strict=True):
        _composite(frame.draft, dim, spec)
    return tuple(dims)


def _axis(frame: Frame, spec: syntax.AxisSpec, seen: set[str]) -> str:
    """Declare one axis of an annotation and return its name."""
    name = spec.name if spec.name is not None else str(spec.extent)
    if spec.name is not None:
        check_name(name, "axis", spec.span)
    if name in seen:
        hint = f'tell the dimensions apart, "{name}1 {name}2", and write x[{name}, {name}] below'
        if spec.name is None:
            hint = f"name them: i={name} j={name}"
        raise AxisError(f"axis {name} stands twice in one annotation", hint=hint, span=spec.span)
    seen.add(name)
    declare_extent(frame.draft, name, spec.extent, spec.span)
    frame.axes[name] = (name,)
    return name


def declare_extent(draft: Draft, name: str, extent: int | None, span: Span) -> None:
    """Add an axis, or join a literal extent with what is known of it.

    Raises:
        AxisError: The axis has another extent already.
    """
    known = draft.axes.get(name)
    if known is None:
        draft.declare(Axis(name, extent, span))
    elif extent is not None and known.extent != extent:
        if known.extent is not None:
            what = known.extent if isinstance(known.extent, int) else "one that is computed"
            raise AxisError(
                f"axis {name} has extent {extent} here, and {what} before",
                hint="an axis has one extent; give one of them another name",
                span=span,
            )
        draft.declare(Axis(name, extent, known.span))


def _composite(draft: Draft, dim: Dim, spec: syntax.DimSpec) -> None:
    """Declare the extent of a composite dimension that may be ragged.

    That is one of two axes whose inner extent is a literal: "(t g=128)" over 130 elements has two
    groups, and the second has two elements.
    """
    if len(spec.axes) != 2:
        return
    outer, inner = spec.axes
    whole, ragged = ragged_axis(dim), draft.signature.ragged
    if outer.extent is not None or inner.extent is None or whole in draft.axes:
        return
    if ragged is not None and whole not in ragged:
        draft.divided = True
        return
    draft.declare(Axis(whole, None, spec.span))
    total = draft.build.size(whole, span=spec.span)
    padded = draft.apply("add", total, inner.extent - 1, span=spec.span)
    groups = draft.apply("floordiv", padded, inner.extent, span=spec.span)
    known = draft.axes[dim.axes[0]]
    if known.extent is None:
        draft.declare(Axis(known.name, groups, known.span))
