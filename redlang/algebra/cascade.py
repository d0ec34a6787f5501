"""Cascades: which stages read which, and which may share a sweep at all.

A *stage* is a reduction of the program. Pointwise definitions are only names for expressions: where
one reads a stage, so does whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from redlang.algebra.sharing import Pool
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Cast, Definition, Expr, Program, Reduce, Ref

ORDERED: frozenset[str] = frozenset({"argmax", "argmin", "topk", "monoid"})
"""Reductions whose result depends on the order of their axes."""


@dataclass(slots=True)
class Group:
    """Stages that share a sweep, in the program's order."""

    axes: tuple[str, ...]
    stages: list[str] = field(default_factory=list)


class Dependences:
    """Who reads what in one program.

    Attributes:
        program: The program.
        stages: The reductions by their first name, in order.
        build: Typed constructors for the program's axes.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.build = Builder.of(program)
        self.pool = Pool()
        self.stages: dict[str, Definition] = {}
        self._stage_of: dict[str, str] = {}
        self._pointwise: dict[str, Expr] = {}
        self._reads: dict[str, frozenset[str]] = {}
        self._aliases: dict[str, Expr] = {}
        self._values: dict[int, Expr] = {}
        for definition in program.definitions:
            first = definition.names[0]
            self._reads[first] = self._reads_of(definition)
            if isinstance(definition.value, Reduce):
                self.stages[first] = definition
                self._stage_of.update(dict.fromkeys(definition.names, first))
            else:
                self._pointwise[first] = definition.value
                self._find_alias(first, definition.value)

    def reduce(self, stage: str) -> Reduce:
        """Return the reduction of a stage."""
        value = self.stages[stage].value
        assert isinstance(value, Reduce)
        return value

    def reads(self, stage: str) -> frozenset[str]:
        """Return the stages that `stage` reads, also through pointwise definitions."""
        return self._reads[stage]

    def depends(self, stage: str, on: Iterable[str]) -> bool:
        """Return whether `stage` is one of `on` or needs one of them, however far back."""
        targets = set(on)
        pending, seen = [stage], set[str]()
        while pending:
            current = pending.pop()
            if current in targets:
                return True
            if current not in seen:
                seen.add(current)
                pending.extend(self._reads[current])
        return False

    def axes(self, stage: str) -> tuple[str, ...]:
        """Return a stage's axes: as written where their order matters, else the kernel's order."""
        reduce = self.reduce(stage)
        if reduce.op in ORDERED:
            return reduce.axes
        return self.program.ordered(frozenset(reduce.axes))

    def free(self, stage: str) -> frozenset[str]:
        """Return the axes that a stage's result has, slots of top-k lists apart."""
        reduce = self.reduce(stage)
        own = frozenset(axis for type_ in reduce.types for axis in type_.axes)
        return own - {reduce.new_axis} if reduce.new_axis else own

    def names(self, stages: Iterable[str]) -> frozenset[str]:
        """Return every name that the stages define."""
        return frozenset(name for stage in stages for name in self.stages[stage].names)

    def inlined(self, expr: Expr, stages: Iterable[str]) -> Expr:
        """Return `expr` with each pointwise definition opened that reads one of `stages`.

        What is only another name for a value gets its first name.
        """
        targets = frozenset(stages)
        opened: dict[str, Expr] = {}

        def rule(node: Expr) -> Expr:
            if not isinstance(node, Ref) or node.name not in self._pointwise:
                return node
            if self._reads[node.name].isdisjoint(targets):
                return self._aliases.get(node.name, node)
            if node.name not in opened:
                opened[node.name] = walk.rewrite(self._pointwise[node.name], rule)
            return opened[node.name]

        return self.pool.intern(walk.rewrite(expr, rule))

    def _find_alias(self, name: str, value: Expr) -> None:
        """Note that `name` is another name for a leaf, or for an earlier definition's value."""

        def rule(node: Expr) -> Expr:
            return self._aliases.get(node.name, node) if isinstance(node, Ref) else node

        value = self.pool.intern(walk.rewrite(value, rule))
        if not isinstance(value, Apply | Cast):
            self._aliases[name] = value
            return
        first = self._values.setdefault(id(value), Ref(name, value.type))
        if isinstance(first, Ref) and first.name != name:
            self._aliases[name] = first

    def _reads_of(self, definition: Definition) -> frozenset[str]:
        found: set[str] = set()
        for name in walk.value_refs(definition.value):
            if name in self._stage_of:
                found.add(self._stage_of[name])
            else:
                found |= self._reads.get(name, frozenset())
        return frozenset(found)


def compatible(dependences: Dependences, group: Group, stage: str) -> bool:
    """Return whether `stage` may join `group`: same axes, and nothing it needs waits for it."""
    axes = dependences.axes(stage)
    if frozenset(axes) != frozenset(group.axes):
        return False
    if (
        axes != group.axes
        and _ordered(dependences, [stage])
        and _ordered(dependences, group.stages)
    ):
        return False
    outside = dependences.reads(stage) - set(group.stages)
    return not any(dependences.depends(read, group.stages) for read in outside)


def _ordered(dependences: Dependences, stages: Iterable[str]) -> bool:
    return any(dependences.reduce(stage).op in ORDERED for stage in stages)
