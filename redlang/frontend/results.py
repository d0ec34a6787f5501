"""What a kernel returns: the order of axes, the element type, and that nothing absent escapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redlang.errors import AbsenceError, AxisError, RedlangError
from redlang.frontend import syntax
from redlang.frontend.annotations import element_hint
from redlang.frontend.builtins import did_you_mean
from redlang.frontend.draft import Draft, Frame, SilencedError
from redlang.frontend.gather import inside, ragged_axis
from redlang.frontend.hints import misspelled
from redlang.frontend.names import NAME_TOPK
from redlang.frontend.reductions import anonymous
from redlang.frontend.scope import Number
from redlang.frontend.signature import check_name, declare_extent, element_type
from redlang.frontend.typing import storage_promotion
from redlang.frontend.wording import are, counted, named
from redlang.ir import walk
from redlang.ir.program import ArrayParam, Cast, Dim, Expr, Fill, Load, Mask, Ref, Result
from redlang.ir.types import DType
from redlang.source import Span


def results(
    frame: Frame, values: Sequence[Expr | None], places: Sequence[Span], whole: Span
) -> tuple[Result, ...]:
    """Return the kernel's results; note what is wrong with them."""
    annotations = frame.function.returns
    if list(values) == [None] and len(annotations or ()) > 1:
        # A call with a mistake: nobody knows how many results it would have given.
        return ()
    if annotations is not None and len(annotations) != len(values):
        frame.report(
            AxisError(
                f"{counted(len(values), 'result')} {are(len(values))} returned, and the "
                f"annotation describes {len(annotations)}",
                hint='one string for each result: -> ("b m", "b")',
                span=whole,
            ),
            whole,
        )
        return ()
    found: list[Result] = []
    for i, (value, place) in enumerate(zip(values, places, strict=True)):
        try:
            annotation = annotations[i] if annotations is not None else None
            if annotation is not None:
                _check_annotation(frame, annotation, value)
            if value is not None:
                found.append(_result(frame, value, annotation, place))
        except RedlangError as error:
            frame.report(error, place)
    return tuple(found)


def _check_annotation(frame: Frame, annotation: syntax.ArrayAnnotation, value: Expr | None) -> None:
    """Check the names in a result's annotation; the value, if known, is for the hint."""
    if annotation.dtype is not None:
        element_type(annotation.dtype, annotation.span, element_hint(annotation))
    seen: set[str] = set()
    for dim in annotation.dims:
        for spec in dim.axes:
            if spec.name is None:
                continue
            check_name(spec.name, "axis", spec.span)
            if spec.name in seen:
                raise AxisError(
                    f"axis {spec.name} stands twice in one annotation",
                    hint="a result has each of its axes once",
                    span=spec.span,
                )
            seen.add(spec.name)
            if spec.extent is None and spec.name not in frame.axes:
                if frame.draft.doubtful:
                    raise SilencedError("an axis of a parameter that has a mistake")
                hint = did_you_mean(spec.name, named(frame.axes))
                raise AxisError(
                    f"{spec.name} is no axis of this kernel",
                    hint=hint or _its_axes(value) or f"an axis of known extent: {spec.name}=8",
                    span=spec.span,
                )


def _result(
    frame: Frame, value: Expr, annotation: syntax.ArrayAnnotation | None, place: Span
) -> Result:
    draft = frame.draft
    if annotation is None:
        dims = tuple(Dim((axis,)) for axis in value.type.axes)
        dtype = result_dtype(draft, value)
    else:
        dims = _annotated(frame, value, annotation, place)
        dtype = (
            element_type(annotation.dtype, annotation.span)
            if annotation.dtype is not None
            else result_dtype(draft, value)
        )
    ragged = [inside(draft, dim, place) for dim in dims if ragged_axis(dim) in draft.axes]
    if value.type.absent:
        _check_present(draft, value, ragged, place)
    condition = draft.build.conjunction(ragged)
    return Result(value, dims, dtype, place, condition)


def _annotated(
    frame: Frame, value: Expr, annotation: syntax.ArrayAnnotation, place: Span
) -> tuple[Dim, ...]:
    """Return the dimensions that an annotation lists, and check that they hold the value's axes."""
    unnamed = [axis for axis in value.type.axes if anonymous(axis)]
    dims = tuple(
        Dim(tuple(_axis(frame, spec, unnamed) for spec in dim.axes)) for dim in annotation.dims
    )
    listed = {axis for dim in dims for axis in dim.axes}
    missing = [axis for axis in value.type.axes if axis not in listed]
    if missing:
        what = "axis" if len(missing) == 1 else "axes"
        raise AxisError(
            f"the result has {what} {' '.join(missing)}, which its annotation does not list",
            hint=_missing_hint(frame, missing[0]),
            span=place,
        )
    return dims


def _axis(frame: Frame, spec: syntax.AxisSpec, unnamed: list[str]) -> str:
    if spec.name is None:
        assert spec.extent is not None
        for axis in unnamed:
            if frame.draft.extent(axis) == spec.extent:
                unnamed.remove(axis)
                return axis
        declare_extent(frame.draft, str(spec.extent), spec.extent, spec.span)
        return str(spec.extent)
    if spec.extent is not None:
        declare_extent(frame.draft, spec.name, spec.extent, spec.span)
        return spec.name
    (axis,) = frame.axes[spec.name]
    return axis


def _its_axes(value: Expr | None) -> str:
    """Say which axes a result has; nothing if that is unknown."""
    if value is None:
        return ""
    axes = " ".join(axis.partition(".")[0] for axis in value.type.axes)
    hint = f"the result has {f'the axes {axes}' if axes else 'no axes'}"
    return f"{hint}; {NAME_TOPK}" if any(map(anonymous, value.type.axes)) else hint


def _missing_hint(frame: Frame, axis: str) -> str:
    if anonymous(axis):
        return f"list it by its extent, {axis.partition('.')[0]}, or name it, as in topk[n:j](x, 4)"
    if axis in frame.named_by_subscript and isinstance(frame.scope.find(axis), Number):
        return (
            f"{axis} as a subscript names a new axis; to read at the number {axis} from outside, "
            f"write {axis} + 0"
        )
    hint = ""
    if axis in frame.named_by_subscript:
        hint = misspelled(frame.function, axis, frame.bindings)
    return hint or f"reduce it, sum[{axis}](...), or add {axis} to the annotation"


def _check_present(draft: Draft, value: Expr, ragged: Sequence[Expr], place: Span) -> None:
    """Check that a value is there wherever it is stored.

    Raises:
        AbsenceError: It may be absent elsewhere than behind the end of a ragged dimension.
    """
    _, conditions = draft.presence.split(value)
    if all(condition in ragged for condition in conditions):
        return
    array = _missing_read(draft, value)
    raise AbsenceError(
        f"{array}[...] is absent where a subscript lies outside its axis"
        if array is not None
        else "the result may be absent in places",
        hint="give those elements a value: fill(..., 0)"
        if array is not None
        else "give those elements a value: fill(..., 0), or where(c, a, b) with both branches",
        span=place,
    )


def _missing_read(draft: Draft, value: Expr) -> str | None:
    """Return an array whose reads make `value` absent, if nothing else does."""
    nodes = list(_depends(draft, value))
    if any(isinstance(node, Mask) for node in nodes):
        return None
    reads = (node for node in nodes if isinstance(node, Load) and any(node.guarded))
    return next((read.array for read in reads), None)


def result_dtype(draft: Draft, value: Expr) -> DType:
    """Return the storage type of a result whose annotation has no element type.

    An outermost cast wins; integers and bools are stored as they are computed; a float has the
    promotion of the floating array parameters that it depends on.
    """
    cast = _outermost_cast(draft, value)
    if cast is not None:
        return cast.to
    if value.type.dtype.kind != "float":
        return value.type.dtype
    dtypes = [p.dtype for p in _arrays(draft, value) if p.dtype.kind == "float"]
    return storage_promotion(dtypes) or value.type.dtype


def _outermost_cast(draft: Draft, value: Expr) -> Cast | None:
    match value:
        case Cast(explicit=True):
            return value
        case Mask(_, operand) | Fill(operand, _):
            return _outermost_cast(draft, operand)
        case Ref():
            definition = draft.value_of(value)
            return _outermost_cast(draft, definition) if isinstance(definition, Expr) else None
        case _:
            return None


def _arrays(draft: Draft, value: Expr) -> list[ArrayParam]:
    """Return the array parameters that `value` depends on, through definitions."""
    names = {node.array for node in _depends(draft, value) if isinstance(node, Load)}
    params = [param for name, param in draft.params.items() if name in names]
    return [param for param in params if isinstance(param, ArrayParam)]


def _depends(draft: Draft, value: Expr) -> Iterator[Expr]:
    """Yield the nodes that `value` is made of, through definitions."""
    done: set[str] = set()
    queue: list[Expr] = [value]
    while queue:
        for node in walk.nodes(queue.pop()):
            yield node
            if isinstance(node, Ref) and node.name not in done:
                done.add(node.name)
                queue.extend(walk.expressions(draft.value_of(node)))
