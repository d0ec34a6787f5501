"""The syntax tree: a kernel as it was written, one node for each rule of the grammar.

Nothing is looked up here; names are text. `parser` builds these nodes, `resolve` reads them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from redlang.source import NOWHERE, Span
from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: `1`, `0.5`, `True`."""

    value: bool | int | float
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A name, dotted for numbers kept in an object: `x`, `cfg.eps`."""

    text: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `+x`, `~x` or `not x`."""

    op: str
    operand: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` with an arithmetic or bitwise operator, or `and`, `or`."""

    op: str
    left: Expr
    right: Expr
    parenthesised: bool = field(default=False, compare=False, repr=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """`a < b <= c`: one or more comparisons in a chain; `len(operands) == len(ops) + 1`."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]
    parenthesised: bool = field(default=False, compare=False, repr=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IfElse:
    """`x if c else y`, which `resolve` answers with a hint to `where`."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AxisBinding:
    """`n` or `m:i` between the brackets of a call."""

    name: str
    target: str | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Keyword:
    """`name=value` in a call."""

    name: str
    value: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`f(x)`, `sum[n](x)`, `topk[e:j](p, 8)`, `attention[m:i](q, k, v, scale=2.0)`."""

    function: Name
    axes: tuple[AxisBinding, ...]
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Subscript:
    """`k[table[b, n // 16], d]`."""

    array: Name
    subscripts: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr: TypeAlias = Number | Name | Unary | Binary | Compare | IfElse | Call | Subscript


@dataclass(frozen=True, slots=True)
class Assign:
    """`a = value` or `a, b = value`."""

    targets: tuple[Name, ...]
    value: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Return:
    """`return a` or `return a, b`."""

    values: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Statement: TypeAlias = Assign | Return


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """An axis in an annotation: `n` (name only), `n=128` (both), `8` (extent only)."""

    name: str | None
    extent: int | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DimSpec:
    """One dimension in an annotation: one axis, or several in parentheses."""

    axes: tuple[AxisSpec, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ArrayAnnotation:
    """`"b (g r) m d"`, `"f16[b h]"`, `"f32[]"`, `""`."""

    dtype: str | None
    dims: tuple[DimSpec, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ScalarAnnotation:
    """`float`, `int` or `bool`."""

    kind: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter; `annotation` is None where a macro leaves it out."""

    name: str
    annotation: ArrayAnnotation | ScalarAnnotation | None
    default: bool | int | float | None = None
    keyword_only: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Decorator:
    """`@redlang.kernel(fuse="require")`: dotted name and literal keywords.

    `computed` holds the text of arguments that only Python can evaluate.
    """

    name: str
    options: tuple[tuple[str, bool | int | float | str], ...] = ()
    computed: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel, a macro, or a method of a monoid.

    `returns` is None without an annotation, else one entry for each result.
    """

    name: str
    parameters: tuple[Parameter, ...]
    returns: tuple[ArrayAnnotation, ...] | None
    docstring: str | None
    body: tuple[Statement, ...]
    decorators: tuple[Decorator, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MonoidClass:
    """A class of DSL functions init, lift, combine, finish."""

    name: str
    docstring: str | None
    methods: tuple[Function, ...]
    decorators: tuple[Decorator, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Syntax: TypeAlias = Function | MonoidClass
