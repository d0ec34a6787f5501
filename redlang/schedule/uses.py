"""Who reads which stage of a program, and which axes stages have."""

from __future__ import annotations

from collections.abc import Iterable

from redlang.ir import walk
from redlang.ir.incremental import Combine, Each, Let, Partial, Sweep
from redlang.ir.program import Definition, Expr, Program, Reduce


def step_expressions(sweep: Sweep) -> Iterable[Expr]:
    """Yield every expression that the update and the finish of `sweep` evaluate."""
    for step in sweep.update:
        match step:
            case Each() | Let():
                yield step.value
            case Partial():
                yield from step.values
                if step.condition is not None:
                    yield step.condition
            case Combine():
                pass
    for let in sweep.finish:
        yield let.value
    for state in sweep.states:
        yield state.initial


class Uses:
    """Who reads which stage, through pointwise definitions."""

    def __init__(self, program: Program, sweeps: tuple[Sweep, ...]) -> None:
        self.program = program
        self.definitions: dict[str, Definition] = {
            name: definition for definition in program.definitions for name in definition.names
        }
        self.sweep_of = {stage: sweep for sweep in sweeps for stage in sweep.stages}
        self._stages: dict[str, frozenset[str]] = {}
        for definition in program.definitions:
            if not isinstance(definition.value, Reduce):
                self._stages[definition.names[0]] = self.stages(definition.value)

    def stages(self, expr: Expr) -> frozenset[str]:
        """Return the stages that `expr` reads, directly or through pointwise definitions."""
        found: set[str] = set()
        for name in walk.refs(expr):
            if name in self.sweep_of:
                found.add(name)
            else:
                found |= self._stages.get(name, frozenset())
        return frozenset(found)

    def read_by(self, sweep: Sweep) -> list[Sweep]:
        """Return the other sweeps that `sweep` reads."""
        names: set[str] = set()
        for expr in step_expressions(sweep):
            names |= self.stages(expr)
        return self._distinct(names, other_than=sweep)

    def read_by_result(self, number: int) -> list[Sweep]:
        """Return the sweeps that result `number` reads."""
        return self._distinct(self.stages(self.program.results[number].value), other_than=None)

    def stage_axes(self, stage: str) -> frozenset[str]:
        """Return the axes of a stage's result, without the axis that counts top-k slots."""
        value = self.definitions[stage].value
        assert isinstance(value, Reduce)
        slots = {value.new_axis} if value.new_axis else set()
        return frozenset(axis for t in value.types for axis in t.axes) - slots

    def all_axes(self, sweep: Sweep) -> frozenset[str]:
        """Return the axes that any stage of `sweep` has."""
        return frozenset[str]().union(*map(self.stage_axes, sweep.stages))

    def base(self, sweep: Sweep) -> frozenset[str]:
        """Return the axes that all stages of `sweep` have."""
        return frozenset.intersection(*map(self.stage_axes, sweep.stages))

    def _distinct(self, stages: Iterable[str], other_than: Sweep | None) -> list[Sweep]:
        found = {id(self.sweep_of[s]): self.sweep_of[s] for s in stages}
        if other_than is not None:
            found.pop(id(other_than), None)
        return list(found.values())
