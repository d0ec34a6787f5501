"""Element steps: the statements of the loop IR that a loop over elements can run, one at a time.

A body of the loop IR works on whole tiles. Its statements that are neither loops nor branches nor
matrix products become steps: each says over which axes it runs, what it reads and what it writes,
so that `nesting` can decide which of them share a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from redlang.ir import loops, walk
from redlang.ir.program import Expr
from redlang.ir.types import Type


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = value`, pointwise."""

    name: str
    value: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Begin:
    """Give the results of `fold` the values that they have when nothing was seen."""

    fold: loops.Fold


Step: TypeAlias = Assign | Begin | loops.Fold | loops.Combine | loops.Store


def step_expressions(step: Step) -> tuple[Expr, ...]:
    """Return the expressions that a step evaluates."""
    match step:
        case Assign(value=value) | loops.Store(value=value):
            return (value,)
        case loops.Fold(values=values, condition=condition):
            return values if condition is None else (*values, condition)
        case Begin() | loops.Combine():
            return ()
        case _:
            assert_never(step)


def step_axes(step: Step, slot: str | None) -> frozenset[str]:
    """Return the axes that a step runs over; the slots of a top-k list are handled at once."""
    match step:
        case Assign(value=value, type=type_):
            return frozenset(type_.axes) | frozenset(value.type.axes)
        case loops.Store(value=value, axes=axes):
            return frozenset(axes) | frozenset(value.type.axes)
        case Begin(fold):
            return kept_axes(fold, slot)
        case loops.Fold(over=over):
            read = (axis for expr in step_expressions(step) for axis in expr.type.axes)
            return kept_axes(step, slot) | frozenset(over) | frozenset(read)
        case loops.Combine(types=types):
            return frozenset(axis for t in types for axis in t.axes) - {slot}
        case _:
            assert_never(step)


def kept_axes(fold: loops.Fold, slot: str | None) -> frozenset[str]:
    """Return the axes of a fold's results, without the axis that counts top-k slots."""
    return frozenset(axis for t in fold.types for axis in t.axes) - {slot}


def step_reads(step: Step) -> frozenset[str]:
    """Return the names whose values a step reads; a fold also reads what `Begin` wrote."""
    names = frozenset[str]().union(*map(walk.refs, step_expressions(step)))
    match step:
        case loops.Combine(left=left, right=right):
            return names | frozenset(left) | frozenset(right)
        case loops.Fold(names=results):
            return names | frozenset(results)
        case Assign() | Begin() | loops.Store():
            return names
        case _:
            assert_never(step)


def step_writes(step: Step) -> frozenset[str]:
    """Return the names that a step gives values to, results and workspaces included."""
    match step:
        case Assign(name=name):
            return frozenset({name})
        case Begin(fold):
            return frozenset(fold.names)
        case loops.Fold(names=names) | loops.Combine(names=names):
            return frozenset(names)
        case loops.Store(target=target):
            return frozenset({target})
        case _:
            assert_never(step)
