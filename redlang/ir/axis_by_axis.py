"""Reductions over several axes of what spreads over them: by one axis, then by the others.

    mean[m, n](exp(-sum[d]((x - y) ** 2)))   -->   sum[m](sum[n](exp(...))) / ...

What there is for every pair of rows is worth being computed where it is read, by units that share
the rows among them. Over all axes at once no axis would be left that units could share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Definition, Expr, Program, Reduce, Ref
from redlang.ir.spread import spreads

OPS = ("sum", "max", "min")


def axis_by_axis(program: Program) -> Program:
    """Return a normalised program in which such reductions go by one axis first."""
    if all(not isinstance(d.value, Reduce) or len(d.value.axes) < 2 for d in program.definitions):
        return program
    stages = _Stages(program)
    definitions = [part for d in program.definitions for part in stages.parts(d)]
    return replace(program, definitions=tuple(definitions))


class _Stages:
    """The reductions of a program, and which of them read which."""

    def __init__(self, program: Program) -> None:
        self.build = Builder.of(program)
        self.definitions = {name: d for d in program.definitions for name in d.names}
        self.reads: dict[str, frozenset[str]] = {}
        for name, definition in self.definitions.items():
            self.reads[name] = self._direct(walk.expressions(definition.value))

    def parts(self, definition: Definition) -> tuple[Definition, ...]:
        """Return a definition, or two in its place."""
        value = definition.value
        if not isinstance(value, Reduce) or value.op not in OPS or not self._is_apart(definition):
            return (definition,)
        (type_,), (name,) = value.types, definition.names
        *rest, first = value.axes
        made = replace(type_, axes=self.build.union([(*type_.axes, *rest)]))
        part = Ref(f"{name}.part", made)
        inner = replace(value, axes=(first,), types=(made,))
        outer = replace(value, axes=tuple(rest), operands=(part,), condition=None)
        return (
            replace(definition, names=(part.name,), value=inner),
            replace(definition, value=outer),
        )

    def _is_apart(self, definition: Definition) -> bool:
        """Say whether a reduction is over what spreads, and shares its sweep with none.

        A softmax over all axes is one sweep, in which one reduction reads another.
        """
        (name, *_), value = definition.names, definition.value
        assert isinstance(value, Reduce)
        over = set(value.axes)
        spread = (
            spreads(self.definitions, read)
            for read in self.reads[name]
            if len(over & self._axes(read)) > 1
        )
        others = self._all(name) | {other for other in self.reads if name in self._all(other)}
        return any(spread) and not any(over & self._over(other) for other in others)

    def _direct(self, exprs: Iterable[Expr]) -> frozenset[str]:
        """Return the reductions that expressions read, through other definitions."""
        found = frozenset[str]()
        for name in frozenset[str]().union(*map(walk.refs, exprs)):
            is_stage = isinstance(self.definitions[name].value, Reduce)
            found |= {name} if is_stage else self.reads[name]
        return found

    def _all(self, name: str) -> frozenset[str]:
        """Return the reductions that one reads, directly or through others."""
        read = self.reads[name]
        return read.union(*map(self._all, read))

    def _axes(self, name: str) -> set[str]:
        return {a for type_ in walk.value_types(self.definitions[name].value) for a in type_.axes}

    def _over(self, name: str) -> set[str]:
        value = self.definitions[name].value
        return set(value.axes) if isinstance(value, Reduce) else set()
