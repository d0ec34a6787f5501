"""When is an element there? Take an expression apart into its value and the conditions it needs.

Absence comes from three places: `where(c, a)`, a gather whose subscript may leave its axis, and
definitions that are themselves absent somewhere. Everything else passes it on: arithmetic on an
absent element is absent. `split` gives back an expression that holds no `Mask` and no `Fill`, reads
arrays only inside their bounds, and so has some value everywhere, with the list of conditions under
which that value counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Ref,
    Scalar,
    Size,
)
from redlang.ir.types import I64

Conditions: TypeAlias = tuple[Expr, ...]
"""Conditions that must all hold; none of them is absent anywhere."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What is known where an expression is taken apart.

    Attributes:
        build: Typed constructors for the kernel's axes.
        arrays: The axes of each array parameter, in memory order.
        definitions: The conditions of earlier definitions that may be absent.
    """

    build: Builder
    arrays: Mapping[str, tuple[str, ...]]
    definitions: Mapping[str, Conditions] = field(default_factory=dict)

    def split(self, expr: Expr) -> tuple[Expr, Conditions]:
        """Return `expr` without masks, and the conditions under which its elements are there."""
        match expr:
            case Literal() | Index() | Size() | Scalar():
                return expr, ()
            case Ref(name):
                if not expr.type.absent:
                    return expr, ()
                return replace(expr, type=replace(expr.type, absent=False)), self.definitions[name]
            case Load():
                return self._load(expr)
            case Apply() | Cast():
                values, conditions = self._all(walk.children(expr))
                return _rebuilt(self.build, expr, values), conditions
            case Mask(condition, operand):
                value, conditions = self.split(operand)
                test, needed = self.split(condition)
                return value, distinct((*conditions, *needed, *conjuncts(test)))
            case Fill(operand, other):
                return self._fill(expr, operand, other)
            case _:
                assert_never(expr)

    def _all(self, parts: Sequence[Expr]) -> tuple[list[Expr], Conditions]:
        pairs = [self.split(part) for part in parts]
        needed = distinct([one for _, conditions in pairs for one in conditions])
        return [value for value, _ in pairs], needed

    def _load(self, load: Load) -> tuple[Expr, Conditions]:
        subscripts, needed = self._all(load.subscripts)
        conditions = list(needed)
        axes = self.arrays[load.array]
        for i, (subscript, guard, axis) in enumerate(
            zip(subscripts, load.guarded, axes, strict=True)
        ):
            if guard:
                size = self.build.size(axis)
                conditions.append(self.build.apply("ge", subscript, 0))
                conditions.append(self.build.apply("lt", subscript, size))
                last = self.build.apply("sub", size, 1)
                subscripts[i] = self.build.convert(
                    self.build.apply("clip", subscript, 0, last), I64
                )
        clamped = replace(load, subscripts=tuple(subscripts), guarded=(False,) * len(axes))
        varying = self.build.union(part.type.axes for part in subscripts)
        type_ = replace(load.type, axes=varying, absent=False)
        return replace(clamped, type=type_), distinct(conditions)

    def _fill(self, fill: Fill, operand: Expr, other: Expr) -> tuple[Expr, Conditions]:
        value, conditions = self.split(operand)
        present = self.build.conjunction(conditions)
        substitute, needed = self.split(other)
        if present is None:
            return value, ()
        type_ = replace(
            fill.type,
            axes=self.build.union([present.type.axes, value.type.axes, substitute.type.axes]),
            absent=False,
        )
        chosen = Apply("where", (present, value, substitute), type_, fill.span)
        otherwise = self.build.conjunction(needed)
        if otherwise is None:
            return chosen, ()
        return chosen, (self.build.apply("or", present, otherwise),)


def conjuncts(condition: Expr) -> Conditions:
    """Return the parts of a conjunction, a chain of `and` taken apart."""
    if isinstance(condition, Apply) and condition.op == "and":
        return tuple(part for argument in condition.arguments for part in conjuncts(argument))
    return (condition,)


def distinct(conditions: Sequence[Expr]) -> Conditions:
    """Return the conditions, each once, in order of appearance."""
    return tuple(dict.fromkeys(conditions))


def _rebuilt(build: Builder, expr: Apply | Cast, parts: Sequence[Expr]) -> Expr:
    """Return `expr` over mask-free `parts`; element types stay, axes and absence follow them."""
    rebuilt = walk.rebuild(expr, parts)
    if rebuilt is expr:
        return expr
    axes = build.union(part.type.axes for part in parts)
    return replace(rebuilt, type=replace(expr.type, axes=axes, absent=False))
