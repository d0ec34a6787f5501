"""Extents from shapes: what arrays decide, what the text fixes, and whether the two agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from redlang.errors import ArgumentError, InternalError
from redlang.ir import walk
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Axis,
    Cast,
    Dim,
    Expr,
    Literal,
    Program,
    Reduce,
    Scalar,
    Size,
)

Number = bool | int | float

LONGEST = 1 << 62
"""No axis is as long: what counts along it is 64 bits wide."""


def bind_extents(
    program: Program,
    shapes: Mapping[str, Sequence[int]],
    scalars: Mapping[str, Number],
    *,
    streamed: str | None = None,
) -> dict[str, int]:
    """Return the extent of every axis.

    Args:
        program: Declares the axes.
        shapes: The shape of every array parameter.
        scalars: The value of every scalar parameter and captured number.
        streamed: An axis of which the arrays hold a piece only: its top-k lists are checked when
            its whole extent is known, by `check_slots`.

    Raises:
        ArgumentError: A shape contradicts another, a literal or a declared extent; the message
            starts with the array's name.
    """
    binding = _Binding(program, scalars)
    pending: list[tuple[ArrayParam, int, Dim]] = []
    for param in program.params:
        if isinstance(param, ArrayParam):
            binding.check_rank(param, shapes[param.name])
            pending += [(param, i, dim) for i, dim in enumerate(param.dims)]
    while pending:
        left = [
            (param, i, dim)
            for param, i, dim in pending
            if not binding.settle(param, i, dim, tuple(shapes[param.name]))
        ]
        if not binding.solve() and len(left) == len(pending):
            param, _, dim = left[0]
            raise ArgumentError(
                f"{param.name} does not decide how its dimension {whole_name(dim)} splits",
                hint=f"give all but one of its axes an extent, such as {dim.axes[-1]}=8",
                span=param.span,
            )
        pending = left
    binding.solve()
    binding.check_least()
    check_slots(program, binding.extents, origin=binding.origin, streamed=streamed)
    return binding.extents


def check_slots(
    program: Program,
    extents: Mapping[str, int],
    *,
    origin: Mapping[str, str] | None = None,
    streamed: str | None = None,
) -> None:
    """Refuse extents that are shorter than a top-k list along them.

    Args:
        program: Declares the reductions.
        extents: The extent of every axis.
        origin: The array that said so, for the message.
        streamed: An axis whose reductions are passed over.

    Raises:
        ArgumentError: A list would be longer than what it is taken from.
    """
    for definition in program.definitions:
        value = definition.value
        if not isinstance(value, Reduce) or value.k is None or streamed in value.axes:
            continue
        size = prod(extents[axis] for axis in value.axes)
        if value.k > size:
            axes = ", ".join(value.axes)
            source = (origin or {}).get(value.axes[0])
            raise ArgumentError(
                f"axis {axes} has {_count(size, 'element')}{f' in {source}' if source else ''}, "
                f"and topk[{axes}] takes {value.k} of them",
                hint="the k of topk must not pass the axis's size",
                span=value.span,
            )


def whole_name(dim: Dim) -> str:
    """Return the name of a dimension, which for a ragged one is also that of an axis."""
    return dim.axes[0] if len(dim.axes) == 1 else f"({' '.join(dim.axes)})"


def is_ragged(program: Program, dim: Dim) -> bool:
    """Tell whether a composite dimension has an extent of its own, the last group being short."""
    return len(dim.axes) > 1 and any(axis.name == whole_name(dim) for axis in program.axes)


def dim_extent(program: Program, dim: Dim, extents: Mapping[str, int]) -> int:
    """Return the extent of an array's dimension."""
    if is_ragged(program, dim):
        return extents[whole_name(dim)]
    return prod(extents[axis] for axis in dim.axes)


class _Binding:
    """Extents while they become known, each with the array that said so."""

    def __init__(self, program: Program, scalars: Mapping[str, Number]) -> None:
        self.program = program
        self.scalars = scalars
        self.axes = {axis.name: axis for axis in program.axes}
        self.extents = {a.name: a.extent for a in program.axes if isinstance(a.extent, int)}
        self.origin: dict[str, str] = {}

    def check_rank(self, param: ArrayParam, shape: Sequence[int]) -> None:
        if len(shape) != len(param.dims):
            axes = " ".join(whole_name(dim) or "1" for dim in param.dims)
            raise ArgumentError(
                f"{param.name} has {_count(len(shape), 'dimension')}, shape {tuple(shape)}, "
                f"and must have {len(param.dims)}",
                hint=f"{param.name} is declared with the axes {axes!r}",
                span=param.span,
            )

    def settle(self, param: ArrayParam, number: int, dim: Dim, shape: tuple[int, ...]) -> bool:
        """Use one dimension of an array, if it can be; return whether it is done with."""
        length = shape[number]
        if is_ragged(self.program, dim):
            self._define_or_check(param, whole_name(dim), length)
            return True
        unknown = [axis for axis in dim.axes if axis not in self.extents]
        if len(dim.axes) == 1 and not unknown:
            self._define_or_check(param, dim.axes[0], length)
            return True
        if len(unknown) == 1 and self.axes[unknown[0]].extent is None:
            others = [axis for axis in dim.axes if axis != unknown[0]]
            known = prod(self.extents[axis] for axis in others)
            if length % known if known else length:
                raise self._no_multiple(param, number, dim, length, others)
            self.extents[unknown[0]] = length // known if known else 0
            self.origin[unknown[0]] = param.name
            unknown = []
        if unknown:
            return False
        product = prod(self.extents[axis] for axis in dim.axes)
        if product != length:
            parts = self._product(dim.axes) or "1"
            raise ArgumentError(
                f"{param.name} has extent {length} in its dimension {number}, {whole_name(dim)}, "
                f"which must be {product}: {parts}",
                hint=f"{self._said(dim.axes, param)}an axis has one extent in a call",
                span=param.span,
            )
        return True

    def _no_multiple(
        self, param: ArrayParam, number: int, dim: Dim, length: int, others: Sequence[str]
    ) -> ArgumentError:
        """Return the error for a dimension that its known axes do not divide."""
        known = prod(self.extents[axis] for axis in others)
        whole = self._product(others)
        several = f"{known}: {whole}" if len(others) > 1 else whole
        near = [known * (length // known), known * (length // known + 1)] if known else [0]
        fitting = " or ".join(str(size) for size in near if size or not known)
        return ArgumentError(
            f"{param.name} has extent {length} in its dimension {number}, {whole_name(dim)}, "
            f"which is no multiple of {several}",
            hint=f"{self._said(others, param)}an extent of {fitting} fits",
            span=param.span,
        )

    def _product(self, axes: Sequence[str]) -> str:
        return " times ".join(f"{axis} = {self.extents[axis]}" for axis in axes)

    def _said(self, axes: Sequence[str], param: ArrayParam) -> str:
        """Say which other arrays have decided these axes, as the beginning of a hint."""
        given = [axis for axis in axes if self.origin.get(axis, param.name) != param.name]
        said = ", ".join(f"{self.origin[axis]} has {axis} = {self.extents[axis]}" for axis in given)
        return f"{said}: " if said else ""

    def solve(self) -> bool:
        """Evaluate what axes are declared as, where all terms are known; return whether any was."""
        progress = False
        for axis in self.program.axes:
            declared = axis.extent
            if axis.name in self.extents or declared is None or isinstance(declared, int):
                continue
            if not {n.axis for n in walk.nodes(declared) if isinstance(n, Size)} <= set(
                self.extents
            ):
                continue
            value = extent_value(declared, self.extents, self.scalars)
            if not 0 <= value < LONGEST:
                raise ArgumentError(f"axis {axis.name} would have {value} elements", span=axis.span)
            self.extents[axis.name] = value
            progress = True
        return progress

    def check_least(self) -> None:
        for axis in self.program.axes:
            extent = self.extents[axis.name]
            if extent < axis.least:
                origin = self.origin.get(axis.name)
                raise ArgumentError(
                    f"axis {axis.name} has {_count(extent, 'element')}"
                    f"{f' in {origin}' if origin else ''}, and the kernel reads "
                    f"{'one' if axis.least == 1 else f'at least {axis.least}'} by a literal "
                    "subscript",
                    hint=f"pass at least {_count(axis.least, 'element')}",
                    span=axis.span,
                )

    def _define_or_check(self, param: ArrayParam, axis: str, length: int) -> None:
        known = self.extents.get(axis)
        if known is None:
            self.extents[axis] = length
            self.origin[axis] = param.name
        elif known != length:
            raise ArgumentError(
                f"{param.name} has extent {length} along axis {axis!r}, "
                f"{self._reason(axis, known)}",
                hint="an axis has one extent, wherever it appears",
                span=param.span,
            )

    def _reason(self, axis: str, known: int) -> str:
        declared: Axis = self.axes[axis]
        if axis in self.origin:
            return f"and {self.origin[axis]} has {known}"
        how = "which the signature fixes to" if isinstance(declared.extent, int) else "declared as"
        return f"{how} {known}"


def extent_value(expr: Expr, extents: Mapping[str, int], scalars: Mapping[str, Number]) -> int:
    """Return the value of an extent that is declared as an expression."""
    match expr:
        case Literal(value):
            return int(value)
        case Size(axis):
            return extents[axis]
        case Scalar(name):
            return int(scalars[name])
        case Cast(operand):
            return extent_value(operand, extents, scalars)
        case Apply(op, arguments) if op in EXTENT_OPERATORS:
            values = [extent_value(argument, extents, scalars) for argument in arguments]
            return EXTENT_OPERATORS[op](*values)
        case _:
            raise InternalError(f"no extent can be {expr}")


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


EXTENT_OPERATORS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": lambda a: -a,
    "abs": abs,
    "minimum": min,
    "maximum": max,
    "clip": lambda a, low, high: min(max(a, low), high),
}
"""What an extent may be made with; by zero, division and remainder give 0 (contract 12)."""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
