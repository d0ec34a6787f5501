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
from redlang.ir.spread import spreads

ORDERED: frozenset[str] = frozenset({"argmax", "argmin", "topk", "monoid"})
"""Reductions whose result depends on the order of their axes."""


@dataclass(slots=True, eq=False)
class Group:
    """Stages that share a sweep, in the program's order."""

    axes: tuple[str, ...]
    stages: list[str] = field(default_factory=list)


class Dependences:
    """Who reads what in one program.

    Attributes:
        program: The program.
        definitions: Its definitions, by each of their names.
        stages: The reductions by their first name, in order.
        build: Typed constructors for the program's axes.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.build = Builder.of(program)
        self.pool = Pool()
        self.definitions = {name: d for d in program.definitions for name in d.names}
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

    def opened(self, stages: Iterable[str]) -> dict[int, str]:
        """Return the names of the definitions that `inlined` opens, by the ids of their values."""
        targets = frozenset(stages)
        return {
            id(self.inlined(value, targets)): name
            for name, value in self._pointwise.items()
            if not self._reads[name].isdisjoint(targets)
        }

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


class Groups:
    """The sweeps so far, as groups of stages; groups never need each other in a circle."""

    def __init__(self, dependences: Dependences) -> None:
        self.dependences = dependences
        self.groups: list[Group] = []

    def latest_read(self, stage: str) -> tuple[Group, ...]:
        """Return the groups over the same axes that `stage` reads, without those before others.

        They may become one, with the stage in it; nothing is returned where they may not.
        """
        axes = self.dependences.axes(stage)
        reads = self.dependences.reads(stage)
        read = [g for g in self.groups if not reads.isdisjoint(g.stages) and _same(g.axes, axes)]
        latest = tuple(
            group for group in read if not any(self._needs(other, [group]) for other in read)
        )
        union = Group(axes, [name for group in latest for name in group.stages])
        return latest if self.may_join(stage, union, latest) else ()

    def independent(self, stage: str) -> Group | None:
        """Return a group that `stage` may join without reading it.

        Its free axes are alike, or both read what is best reduced step by step of the sweep: then
        that is done once, and needs no place in memory.
        """
        reads, free = self.dependences.reads(stage), self.dependences.free(stage)
        steps, own = self._steps(stage), self.dependences.reduce(stage)
        for group in self.groups:
            alike = free in {self.dependences.free(other) for other in group.stages}
            shares = any(not steps.isdisjoint(self._steps(other)) for other in group.stages)
            apart = reads.isdisjoint(group.stages)
            # What is reduced twice is so for the sake of two sweeps.
            apart &= all(self.dependences.reduce(s) != own for s in group.stages)
            if (alike or shares) and apart and self.may_join(stage, group, (group,)):
                return group
        return None

    def may_join(self, stage: str, union: Group, parts: tuple[Group, ...]) -> bool:
        """Return whether `stage` fits `union`, made of `parts`, and needs nothing after them."""
        axes = self.dependences.axes(stage)
        if not _same(axes, union.axes):
            return False
        if axes != union.axes and self._ordered([stage]) and self._ordered(union.stages):
            return False
        outside = self.dependences.reads(stage) - set(union.stages)
        before = [group for group in self.groups if not outside.isdisjoint(group.stages)]
        return not any(group in parts or self._needs(group, parts) for group in before)

    def join(self, stage: str, groups: tuple[Group, ...]) -> None:
        """Make one group of `groups` and `stage`; a new one if there are none."""
        order = list(self.dependences.stages)
        axes = [group.axes for group in groups if self._ordered(group.stages)]
        if not axes or self._ordered([stage]):
            axes.insert(0, self.dependences.axes(stage))
        names = [stage, *(name for group in groups for name in group.stages)]
        for group in groups:
            self.groups.remove(group)
        self.groups.append(Group(axes[0], sorted(names, key=order.index)))

    def sorted(self) -> list[Group]:
        """Return the groups in an order in which each only reads finished stages."""
        done: set[str] = set()
        pending, ordered = list(self.groups), []
        first = list(self.dependences.stages).index
        pending.sort(key=lambda group: first(group.stages[0]))
        while pending:
            ready = next((g for g in pending if self._reads(g) <= done), None)
            assert ready is not None, "the sweeps read each other in a circle"
            pending.remove(ready)
            ordered.append(ready)
            done.update(ready.stages)
        return ordered

    def _steps(self, stage: str) -> frozenset[str]:
        """Return the stages that `stage` reads which are best reduced at each step of its sweep."""
        swept = frozenset(self.dependences.axes(stage))
        varying = [r for r in self.dependences.reads(stage) if swept & self.dependences.free(r)]
        return frozenset(read for read in varying if spreads(self.dependences.definitions, read))

    def _reads(self, group: Group) -> set[str]:
        """Return the stages outside a group that it reads."""
        read = {name for stage in group.stages for name in self.dependences.reads(stage)}
        return read - set(group.stages)

    def _needs(self, group: Group, targets: Iterable[Group]) -> bool:
        """Return whether `group` needs one of `targets` finished, however far back."""
        wanted = [target for target in targets if target is not group]
        pending, seen = [group], [group]
        while pending:
            reads = self._reads(pending.pop())
            for other in self.groups:
                if other not in seen and not reads.isdisjoint(other.stages):
                    if other in wanted:
                        return True
                    seen.append(other)
                    pending.append(other)
        return False

    def _ordered(self, stages: Iterable[str]) -> bool:
        return any(self.dependences.reduce(stage).op in ORDERED for stage in stages)


def _same(a: Iterable[str], b: Iterable[str]) -> bool:
    return frozenset(a) == frozenset(b)
