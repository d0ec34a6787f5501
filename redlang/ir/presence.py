"""When is an element there? Take an expression apart into its value and the conditions it needs.

Absence comes from three places: `where(c, a)`, a gather whose subscript may leave its axis, and
definitions that are themselves absent somewhere. Everything else passes it on: arithmetic on an
absent element is absent. `split` gives back an expression that holds no `Mask` and no `Fill`, reads
arrays only inside their bounds, and so has some value everywhere, with the list of conditions under
which that value counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias, assert_never

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.monotony import NEGATIVE, sign
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
from redlang.ir.types import Type
from redlang.values import dataclass

Conditions: TypeAlias = tuple[Expr, ...]
"""Conditions that must all hold; none of them is absent anywhere."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What is known where an expression is taken apart.

    Attributes:
        build: Typed constructors for the kernel's axes.
        arrays: The axes of each array parameter, in memory order.
        definitions: The conditions of earlier definitions that may be absent.
        types: Types of earlier definitions, where taking masks away has changed them.
    """

    build: Builder
    arrays: Mapping[str, tuple[str, ...]]
    definitions: Mapping[str, Conditions] = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)

    def split(self, expr: Expr) -> tuple[Expr, Conditions]:
        """Return `expr` without masks, and the conditions under which its elements are there."""
        match expr:
            case Literal() | Index() | Size() | Scalar():
                return expr, ()
            case Ref(name):
                type_ = replace(self.types.get(name, expr.type), absent=False)
                conditions = self.definitions[name] if expr.type.absent else ()
                return (expr if type_ == expr.type else replace(expr, type=type_)), conditions
            case Load():
                return self._load(expr)
            case Apply() | Cast():
                values, conditions = self._all(walk.children(expr))
                return retyped(self.build, expr, values), conditions
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
                subscripts[i], inside = self._clamped(subscript, axis)
                conditions += inside
        clamped = replace(load, subscripts=tuple(subscripts), guarded=(False,) * len(axes))
        varying = self.build.union(part.type.axes for part in subscripts)
        type_ = replace(load.type, axes=varying, absent=False)
        return replace(clamped, type=type_), distinct(conditions)

    def _clamped(self, subscript: Expr, axis: str) -> tuple[Expr, Conditions]:
        """Return a subscript held inside its axis, and the conditions under which it is there."""
        size = self.build.size(axis)
        last = self.build.apply("sub", size, 1)
        below = self.build.apply("lt", subscript, size)
        if not sign(subscript, lambda _: None) & NEGATIVE:
            return self.build.apply("minimum", subscript, last), (below,)
        above = self.build.apply("ge", subscript, 0)
        return self.build.apply("clip", subscript, 0, last), (above, below)

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


def retyped(build: Builder, expr: Expr, parts: Sequence[Expr]) -> Expr:
    """Return a mask-free `expr` over new `parts`: its axes follow them, its element type stays."""
    rebuilt = walk.rebuild(expr, parts)
    if rebuilt is expr:
        return expr
    axes = build.union(part.type.axes for part in parts)
    return replace(rebuilt, type=replace(expr.type, axes=axes, absent=False))
