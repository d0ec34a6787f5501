"""The reduction IR: what a kernel computes, before anyone says in what order.

A `Program` is a list of definitions over named axes. A definition is either a pointwise expression
or one `Reduce`; reductions never stand inside expressions. Nodes are immutable and compare by
value; spans do not take part in equality: the same formula written twice is the same formula.

A program has two forms. As resolved, `Mask` and `Fill` nodes speak of absent elements and no
`Reduce` has a condition. `normalise` turns it into the form that every later stage reads: masks are
gone, each `Reduce` carries the condition under which an element takes part, and gathers are
clamped.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TypeAlias

from redlang.ir.types import DType, Type
from redlang.source import NOWHERE, Span
from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a truth value written in the kernel."""

    value: bool | int | float
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Let one object stand for every NaN, which then equals itself, also after pickling."""
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)


@dataclass(frozen=True, slots=True)
class Index:
    """The index along `axis`, from 0."""

    axis: str
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Size:
    """The extent of `axis`."""

    axis: str
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter or a captured number, known only at the call."""

    name: str
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Load:
    """An element of an array parameter.

    `subscripts` has one entry for each of the parameter's axes in memory order (a composite
    dimension counts as its parts). A plain read has `Index` nodes only. `guarded[i]` says that
    subscript i may fall outside the axis, which makes the element absent.
    """

    array: str
    subscripts: tuple[Expr, ...]
    guarded: tuple[bool, ...]
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an earlier definition (or, in incremental forms, of a state or step)."""

    name: str
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An element function of `ir.operators.OPERATORS` applied to its arguments."""

    op: str
    arguments: tuple[Expr, ...]
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """Round to `to` and continue in its compute type.

    `explicit` casts were written by the user and are kept; the others only change the compute type.
    """

    operand: Expr
    to: DType
    type: Type
    explicit: bool = True
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Mask:
    """`where(condition, operand)`: the operand, absent where the condition is false."""

    condition: Expr
    operand: Expr
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fill:
    """`fill(operand, value)`: the operand, with `value` in place of absent elements."""

    operand: Expr
    value: Expr
    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr: TypeAlias = Literal | Index | Size | Scalar | Load | Ref | Apply | Cast | Mask | Fill


@dataclass(frozen=True, slots=True)
class Monoid:
    """A user's monoid, resolved: its laws are checked by the algebra.

    `init`, `lift`, `combine` and `finish` are expressions over `Ref`s named `x.0, x.1, ...`
    (elements), `a.0, ...` and `b.0, ...` (two states).
    """

    name: str
    init: tuple[Expr, ...]
    lift: tuple[Expr, ...]
    combine: tuple[Expr, ...]
    finish: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction of `operands` over `axes`, row-major in the order written.

    Attributes:
        op: sum, prod, max, min, any, all, count, argmax, argmin, topk or monoid. (`mean` is
            a sum divided by a count; `resolve` writes it so.)
        operands: One expression; several only for a monoid.
        condition: Elements for which it is false do not take part; None means all do.
        types: One type for each result: argmax over several axes has one index an axis, topk
            has values and indices, everything else one result.
        k, new_axis: For topk: how many, and the axis that counts them.
    """

    op: str
    axes: tuple[str, ...]
    operands: tuple[Expr, ...]
    condition: Expr | None
    types: tuple[Type, ...]
    k: int | None = None
    new_axis: str | None = None
    monoid: Monoid | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def operand(self) -> Expr:
        """Return the only operand."""
        (operand,) = self.operands
        return operand


@dataclass(frozen=True, slots=True)
class Definition:
    """`names = value`. Only a `Reduce` may have several names."""

    names: tuple[str, ...]
    value: Expr | Reduce
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Axis:
    """A named axis.

    `extent` is None when arrays decide it, an int when the text does (`n=128`, `8`), and an
    expression over sizes, literals and int scalars for `axis(...)`. `least` is the smallest
    extent that a call may have, which literal subscripts such as `x[3]` or `x[-1]` decide.
    """

    name: str
    extent: Expr | int | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    least: int = 0


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of an array: the axes whose row-major product it is (none: extent 1)."""

    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayParam:
    """An array parameter. `dtype` is the storage type of this specialisation."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the axes in memory order, composite dimensions taken apart."""
        return tuple(axis for dim in self.dims for axis in dim.axes)


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A scalar parameter or, with `captured`, a number from the kernel's surroundings.

    `dtype` is bool, i64 or f64 for weak scalars (`bool`, `int`, `float`, captured), else what the
    annotation `"f32[]"` says.
    """

    name: str
    dtype: DType
    weak: bool
    captured: bool = False
    default: bool | int | float | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A returned array: a pointwise expression over `dims`, stored as `dtype`.

    `condition` is given only where a composite dimension is ragged: elements for which it is false
    lie behind the end of that dimension and are not stored.
    """

    value: Expr
    dims: tuple[Dim, ...]
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    condition: Expr | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the axes in memory order, composite dimensions taken apart."""
        return tuple(axis for dim in self.dims for axis in dim.axes)


Param: TypeAlias = ArrayParam | ScalarParam


@dataclass(frozen=True, slots=True)
class Program:
    """A resolved kernel.

    Attributes:
        name: The kernel's name, for messages and generated text.
        params: Parameters in the order of the signature, then captured numbers.
        axes: Every axis; their order is the kernel's order of axes.
        definitions: In order; each refers to earlier ones only.
        results: What is returned, in order.
    """

    name: str
    params: tuple[Param, ...]
    axes: tuple[Axis, ...]
    definitions: tuple[Definition, ...]
    results: tuple[Result, ...]

    @property
    def places(self) -> tuple[Span, ...]:
        """Where the definitions stand in the text; equal programs may differ in it."""
        return tuple(definition.span for definition in self.definitions)

    def array(self, name: str) -> ArrayParam:
        """Return the array parameter called `name`."""
        return next(p for p in self.params if isinstance(p, ArrayParam) and p.name == name)

    def ordered(self, axes: frozenset[str] | set[str]) -> tuple[str, ...]:
        """Return `axes` in the kernel's order."""
        return tuple(axis.name for axis in self.axes if axis.name in axes)
