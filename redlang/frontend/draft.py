"""A program while it is being resolved: what is declared so far, and the mistakes found.

`Draft` belongs to the kernel, `Frame` to one function body in it: the kernel's own, or that of a
macro or kernel that is being inlined. Names live in frames; axes, definitions and captured numbers
live in the draft, under names that are unique in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from redlang.errors import AxisError, RedlangError
from redlang.frontend import scope as outside
from redlang.frontend import syntax
from redlang.frontend.typing import INT64_MAX, UINT64_MAX, apply
from redlang.ir.build import Builder
from redlang.ir.presence import Conditions, Presence
from redlang.ir.program import (
    ArrayParam,
    Axis,
    Definition,
    Dim,
    Expr,
    Literal,
    Param,
    Reduce,
    Ref,
    ScalarParam,
)
from redlang.ir.types import BOOL, F32, I64, U64, DType, Type
from redlang.source import SourceText, Span
from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """What one specialisation of a kernel knows about its arguments.

    Attributes:
        dtypes: Storage types of array parameters without an element type of their own; a missing
            one is f32.
        kinds: Kinds of captured numbers; a missing one is taken from the scope.
        ragged: Composite dimensions such as "(t g)" whose literal inner extent does not divide
            the array's extent in this call. None means that any of them may be ragged, which is
            always right, and is how a kernel is checked.
    """

    dtypes: Mapping[str, DType] = field(default_factory=dict)
    kinds: Mapping[str, outside.Kind] = field(default_factory=dict)
    ragged: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """A number from outside: parameter `name` has the value of `path` in `scope` at each call."""

    name: str
    scope: outside.Scope
    path: str


@dataclass(frozen=True, slots=True)
class Used:
    """A macro, kernel or monoid that was inlined, or a number that became a literal.

    A call where its name means another makes the kernel anew.
    """

    scope: outside.Scope
    path: str
    entity: outside.Entity


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array parameter under the name that a body knows it by.

    `dims` lists its dimensions as that body subscripts them, in the kernel's axes.
    """

    param: ArrayParam
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """Several values under one name: the state of a monoid."""

    parts: tuple[Expr, ...]


class SilencedError(RedlangError):
    """Something that follows from a mistake that was reported; nobody sees it."""


@dataclass(frozen=True, slots=True)
class Poison:
    """The value of a name whose definition has a mistake; what reads it stays silent."""


Value: TypeAlias = Expr | ArrayView | Tuple | Poison


Body: TypeAlias = Callable[["Frame"], tuple[Expr | None, ...]]


@dataclass(slots=True)
class Draft:
    """A program under construction.

    Attributes:
        name: The kernel's name.
        real: The type of a weak float: f64 in a kernel with an f64 array, else f32.
        axes: Every axis, in the kernel's order.
        conditions: When the elements of a definition are there, for those that may be absent.
        shared: Reductions by value, so that an equal one is not computed twice.
        doubtful: Whether a parameter has a mistake, so that axes may be unknown for that reason.
        divided: Whether this call fills the last group of every dimension that may be ragged, so
            that what may be absent in another call is not in this one.
        kept: The axes of the results; None where the kernel does not say them.
        active: The bodies that are being inlined now, to find recursion.
        body: Resolves the statements of a frame: macros are inlined from inside expressions.
    """

    name: str
    signature: Signature
    real: DType = F32
    params: dict[str, Param] = field(default_factory=dict)
    axes: dict[str, Axis] = field(default_factory=dict)
    captures: dict[tuple[int, str], Capture] = field(default_factory=dict)
    captured: dict[str, ScalarParam] = field(default_factory=dict)
    used: dict[tuple[int, str], Used] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    conditions: dict[str, Conditions] = field(default_factory=dict)
    shared: dict[Reduce, tuple[Ref, ...]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    errors: list[RedlangError] = field(default_factory=list)
    doubtful: bool = False
    divided: bool = False
    kept: frozenset[str | None] | None = None
    active: list[syntax.Syntax] = field(default_factory=list)
    body: Body = field(default=lambda frame: ())

    @property
    def build(self) -> Builder:
        """Return typed constructors over the axes declared so far."""
        return Builder(tuple(self.axes))

    @property
    def presence(self) -> Presence:
        """Return what is known about absence so far."""
        arrays = {p.name: p.axes for p in self.params.values() if isinstance(p, ArrayParam)}
        return Presence(self.build, arrays, self.conditions)

    def order(self, groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
        """Return the union of groups of axes in the kernel's order."""
        wanted = frozenset[str]().union(*groups)
        return tuple(axis for axis in self.axes if axis in wanted)

    def union(self, parts: Sequence[Expr]) -> tuple[str, ...]:
        """Return the axes of all `parts` in the kernel's order."""
        first = parts[0].type.axes if parts else ()
        if all(part.type.axes == first or not part.type.axes for part in parts[1:]):
            return first
        return self.order(part.type.axes for part in parts)

    def apply(self, op: str, *arguments: Expr | int, span: Span) -> Expr:
        """Return `op` of the arguments, typed; a Python int is a literal.

        Raises:
            DTypeError: The operands' types have no meaning for `op`.
        """
        parts = [self.number(a, span) if isinstance(a, int) else a for a in arguments]
        return apply(op, parts, self.union(parts), self.real, span)

    def number(self, value: bool | int | float, span: Span) -> Literal:
        """Return a literal, weak, with the type of its kind."""
        if isinstance(value, bool):
            return Literal(value, Type(BOOL, weak=True), span)
        if isinstance(value, float):
            return Literal(value, Type(self.real, weak=True), span)
        unsigned = INT64_MAX < value <= UINT64_MAX
        return Literal(value, Type(U64 if unsigned else I64, weak=True), span)

    def product(self, axes: Sequence[str], span: Span) -> Expr:
        """Return the number of elements along several axes."""
        if not axes:
            return self.number(1, span)
        result: Expr = self.build.size(axes[0], span=span)
        for axis in axes[1:]:
            result = self.apply("mul", result, self.build.size(axis, span=span), span=span)
        return result

    def flat(self, axes: Sequence[str], span: Span) -> Expr:
        """Return the row-major index over several axes."""
        result: Expr = self.build.index(axes[0], span=span)
        for axis in axes[1:]:
            size = self.build.size(axis, span=span)
            result = self.apply("mul", result, size, span=span)
            result = self.apply("add", result, self.build.index(axis, span=span), span=span)
        return result

    def fresh(self, base: str) -> str:
        """Return `base`, or `base.1`, `base.2`, ... if that name is taken."""
        name, count = base, 0
        while name in self.taken or name in self.axes or name in self.params:
            count += 1
            name = f"{base}.{count}"
        self.taken.add(name)
        return name

    def numbered(self, base: str) -> str:
        """Return the first of `base.1`, `base.2`, ... that is not taken."""
        count = 1
        while f"{base}.{count}" in self.taken:
            count += 1
        return f"{base}.{count}"

    def declare(self, axis: Axis) -> str:
        """Add an axis and return its name."""
        self.axes[axis.name] = axis
        return axis.name

    def define(self, name: str, value: Expr, span: Span) -> Ref:
        """Add a pointwise definition under a fresh name made from `name`."""
        name = self.fresh(name)
        self.definitions[name] = Definition((name,), value, span)
        if value.type.absent:
            self.conditions[name] = self.presence.split(value)[1]
        return Ref(name, value.type, span)

    def define_reduce(self, names: Sequence[str], value: Reduce, span: Span) -> tuple[Ref, ...]:
        """Add a reduction, or return the references to an equal one."""
        if value in self.shared:
            return self.shared[value]
        fresh = tuple(map(self.fresh, names))
        definition = Definition(fresh, value, span)
        self.definitions.update(dict.fromkeys(fresh, definition))
        refs = tuple(Ref(n, t, span) for n, t in zip(fresh, value.types, strict=True))
        self.shared[value] = refs
        return refs

    def lift(self, value: Reduce) -> tuple[Ref, ...]:
        """Give a nested reduction a definition of its own, `max.1`, `sum.2`, ..."""
        base = value.monoid.name if value.monoid is not None else value.op
        if value in self.shared:
            return self.shared[value]
        stem = self.numbered(base)
        names = (
            [stem] if len(value.types) == 1 else [f"{stem}.{i}" for i in range(len(value.types))]
        )
        return self.define_reduce(names, value, value.span)

    def value_of(self, ref: Ref) -> Expr | Reduce:
        """Return what a reference stands for."""
        return self.definitions[ref.name].value

    def need(self, axis: str, least: int) -> None:
        """Note that an axis must have at least so many elements at every call."""
        known = self.axes[axis]
        self.axes[axis] = replace(known, least=max(known.least, least))

    def agree(self, first: str, second: str) -> bool:
        """Make two axes as long as each other, if the text can say so.

        Raises:
            AxisError: They have different literal extents.
        """
        left, right = self.extent(first), self.extent(second)
        if left == right:
            return True
        if isinstance(left, int) and isinstance(right, int):
            raise AxisError(f"{first} has extent {left}, and {second} has extent {right}")
        if isinstance(right, int):
            left, right = right, left
        assert isinstance(right, str)
        known = self.axes[right]
        if known.extent is not None:
            return False
        extent = left if isinstance(left, int) else self.build.size(left, span=known.span)
        self.axes[right] = replace(known, extent=extent)
        return True

    def extent(self, axis: str) -> int | str:
        """Return an axis's extent: a literal, or the name of an axis that has the same one."""
        from_text = self.axes[axis].extent
        if isinstance(from_text, int):
            return from_text
        if from_text is not None and hasattr(from_text, "axis"):
            return self.extent(from_text.axis)
        return axis


@dataclass(slots=True)
class Frame:
    """One function body while it is resolved.

    Attributes:
        axes: What an axis name means here: one of the kernel's axes, a set of them where a macro's
            axis parameter was bound to several, or a name that is not declared yet.
        prefix: Stands before the names that the body gives to the program.
        fixed: Names that cannot be assigned: parameters.
        named_by_subscript: Axes of the kernel that were first named by a subscript.
        misused: Names that were assigned by mistake; what reads them stays silent.
        called: Where the kernel calls this body (through others); None in the kernel itself.
        inline: Whether locals are values rather than definitions (methods of monoids).
        path: The calls that lead here, innermost first, for messages; the last shows its line.
    """

    draft: Draft
    function: syntax.Function
    source: SourceText
    scope: outside.Scope
    bindings: dict[str, Value] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    named_by_subscript: set[str] = field(default_factory=set)
    misused: set[str] = field(default_factory=set)
    prefix: str = ""
    called: Span | None = None
    inline: bool = False
    path: tuple[str, ...] = ()

    def at(self, span: Span) -> Span:
        """Return the place in the kernel's own text that `span` of this body stands for."""
        return span if self.called is None else self.called

    def report(self, error: RedlangError, span: Span) -> None:
        """Note a mistake of this body, at `span` unless the error knows better."""
        if isinstance(error, SilencedError):
            return
        if error.source is None:
            error.source = self.source
            if self.called is not None or error.span is None:
                error.span = span
            if self.path:
                chain = ", ".join(self.path)
                error.hint = f"{error.hint}\n      {chain}" if error.hint else chain
        self.draft.errors.append(error)

    def known(self) -> list[str]:
        """Return the names that have a value in this body."""
        return [*self.bindings, *(name for name in self.axes if name.isidentifier())]
