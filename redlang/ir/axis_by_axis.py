"""Reductions over several axes that are better done by one axis first, then by the others.

    mean[m, n](exp(-sum[d]((x - y) ** 2)))   -->   sum[m](sum[n](exp(...))) / ...
    sum[i, j](x * a * y)                     -->   sum[j](sum[i](x * a) * y)

What there is for every pair of rows is worth being computed where it is read, by units that share
the rows among them. Over all axes at once no axis would be left that units could share. A sum of
products whose factors have different axes is a chain of sums of two factors each, or of fewer
terms, as a matrix unit wants them. A factor that is not finite stays outside of the inner sum, as
`docs/decisions/2026-11-infinite-factors.md` has it for all factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Definition, Expr, Program, Reduce, Ref
from redlang.ir.spread import spreads
from redlang.ir.types import F32, F64

OPS = ("sum", "max", "min")
PAIR = 2


def axis_by_axis(program: Program) -> Program:
    """Return a normalised program in which such reductions go by one axis first."""
    if all(not isinstance(d.value, Reduce) or len(d.value.axes) < 2 for d in program.definitions):
        return program
    stages = _Stages(program)
    definitions = tuple(part for d in program.definitions for part in stages.parts(d))
    if len(definitions) == len(program.definitions):
        return program
    return axis_by_axis(replace(program, definitions=definitions))


_Left: TypeAlias = tuple[Expr, bool]
"""A factor that an inner sum leaves, and whether the text multiplies it by the rest."""


class _Stages:
    """The reductions of a program, and which of them read which."""

    def __init__(self, program: Program) -> None:
        self.build = Builder.of(program)
        self.definitions = {name: d for d in program.definitions for name in d.names}
        self.reads: dict[str, frozenset[str]] = {}
        self.every: dict[str, frozenset[str]] = {}
        for name, definition in self.definitions.items():
            self.reads[name] = self._direct(walk.expressions(definition.value))

    def parts(self, definition: Definition) -> tuple[Definition, ...]:
        """Return a definition, or two in its place."""
        value = definition.value
        if not isinstance(value, Reduce) or len(value.axes) < PAIR or value.op not in OPS:
            return (definition,)
        if not self._is_apart(definition):
            return (definition,)
        if self._is_of_pairs(definition):
            return self._in_turn(definition, value.axes[-1], value.operand, ())
        for axis in reversed(value.axes):
            taken, left = self._chain(value, axis)
            if taken is not None:
                return self._in_turn(definition, axis, taken, left)
        return (definition,)

    def _in_turn(
        self, definition: Definition, axis: str, operand: Expr, left: Sequence[_Left]
    ) -> tuple[Definition, ...]:
        """Return a reduction by one axis, and one by the others of that times what is left."""
        value, (name,) = definition.value, definition.names
        assert isinstance(value, Reduce)
        inner = self.build.reduce(
            value.op, (axis,), operand, condition=value.condition, span=value.span
        )
        outer: Expr = Ref(f"{name}.{axis}", inner.types[0])
        for factor, is_first in reversed(left):
            sides = (factor, outer) if is_first else (outer, factor)
            outer = self.build.mul(*sides)
        rest = tuple(a for a in value.axes if a != axis)
        return (
            replace(definition, names=(f"{name}.{axis}",), value=inner),
            replace(definition, value=self.build.reduce(value.op, rest, outer, span=value.span)),
        )

    def _chain(self, value: Reduce, axis: str) -> tuple[Expr | None, tuple[_Left, ...]]:
        """Return the product that a sum by one axis first is over, and the factors outside of it.

        They are multiplied in the order of the text, which other orders may leave the range of.
        No product: such a sum has as many terms, and no more of them are products of two.
        """
        taken, left = _split(value.operand, axis)
        axes = [frozenset(f.type.axes) for f in walk.factors(taken)]
        whole = frozenset(value.operand.type.axes)
        fewer = frozenset(taken.type.axes) < whole
        paired = len(axes) == PAIR and bool(axes[0] - axes[1]) and bool(axes[1] - axes[0])
        dtypes = {f.type.dtype for f in walk.factors(value.operand)}
        floats = len(dtypes) == 1 and dtypes <= {F32, F64}
        swept = any(set(f.type.axes).intersection(value.axes) for f, _ in left)
        if value.op != "sum" or value.condition is not None or not (floats and swept):
            return None, ()
        if not (fewer or paired) or any(axis not in own for own in axes):
            return None, ()
        return taken, left

    def _is_apart(self, definition: Definition) -> bool:
        """Say whether a reduction shares its sweep with none.

        A softmax over all axes is one sweep, in which one reduction reads another.
        """
        (name, *_), value = definition.names, definition.value
        assert isinstance(value, Reduce)
        over = set(value.axes)
        others = self._all(name) | {other for other in self.reads if name in self._all(other)}
        return not any(over & self._over(other) for other in others)

    def _is_of_pairs(self, definition: Definition) -> bool:
        """Say whether a reduction is over what spreads over several of its axes."""
        (name,), value = definition.names, definition.value
        assert isinstance(value, Reduce)
        return any(
            spreads(self.definitions, read)
            for read in self.reads[name]
            if len(self._axes(read).intersection(value.axes)) > 1
        )

    def _direct(self, exprs: Iterable[Expr]) -> frozenset[str]:
        """Return the reductions that expressions read, through other definitions."""
        found = frozenset[str]()
        for name in frozenset[str]().union(*map(walk.refs, exprs)):
            is_stage = isinstance(self.definitions[name].value, Reduce)
            found |= {name} if is_stage else self.reads[name]
        return found

    def _all(self, name: str) -> frozenset[str]:
        """Return the reductions that one reads, directly or through others."""
        if name not in self.every:
            read = self.reads[name]
            self.every[name] = read.union(*map(self._all, read))
        return self.every[name]

    def _axes(self, name: str) -> set[str]:
        return {a for type_ in walk.value_types(self.definitions[name].value) for a in type_.axes}

    def _over(self, name: str) -> set[str]:
        value = self.definitions[name].value
        return set(value.axes) if isinstance(value, Reduce) else set()


def _split(expr: Expr, axis: str) -> tuple[Expr, tuple[_Left, ...]]:
    """Return the part of a product that holds all of an axis, and the factors around it."""
    left: list[_Left] = []
    while isinstance(expr, Apply) and expr.op == "mul":
        first, second = expr.arguments
        varies = [axis in side.type.axes for side in (first, second)]
        if all(varies):
            break
        expr = first if varies[0] else second
        left.append((second, False) if varies[0] else (first, True))
    return expr, tuple(left)
