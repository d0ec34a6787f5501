"""Which stages share a sweep, and the incremental form of each sweep.

Every stage ends in exactly one sweep. It joins the sweep of the results that it reads over the same
axes if it can be carried there, else it gets a later one, where those results are constants: no
correct program is refused. Independent stages share a sweep where axes and free axes agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from redlang.algebra import explain, finish
from redlang.algebra.cascade import ORDERED, Dependences, Group, compatible
from redlang.algebra.centre import centred
from redlang.algebra.derive import Declined, Plain, Stage, StagePlan, derive
from redlang.algebra.distance import Distances
from redlang.algebra.incremental import Emitter
from redlang.algebra.monoids import laws
from redlang.algebra.operators import Sign
from redlang.algebra.related import related_centres
from redlang.algebra.signs import Signs
from redlang.algebra.split import split
from redlang.algebra.steps import arranged
from redlang.algebra.terms import View
from redlang.algebra.verdicts import Fused, Refuted, StageVerdict
from redlang.errors import FusionError
from redlang.ir.incremental import Let, Sweep
from redlang.ir.program import Monoid, Program

Mode = Literal["auto", "always", "never", "require"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A program with the sweeps that compute it.

    Attributes:
        program: The program that the sweeps belong to: the given one, rewritten where a reduction
            was split or a mean got its rest.
        sweeps: Each stage is finished by exactly one; each reads what earlier ones finished.
        verdicts: One for each stage, in the program's order.
    """

    program: Program
    sweeps: tuple[Sweep, ...]
    verdicts: tuple[StageVerdict, ...]


@lru_cache(maxsize=256)
def fuse(program: Program, *, mode: Mode = "auto") -> Fusion:
    """Return the sweeps of a normalised program.

    Args:
        program: Normalised: conditions stand at the reductions.
        mode: `auto` fuses what is proved and stable; `always` also what may lose digits; `never`
            gives each dependent stage a sweep of its own; `require` raises where `auto` would not
            fuse.

    Raises:
        FusionError: The mode is `require` and a stage cannot share the sweep of what it reads; or a
            monoid breaks its laws.
    """
    return _Fuser(program, mode).run()


class _Fuser:
    """Places the stages of one program, one after another."""

    def __init__(self, program: Program, mode: Mode) -> None:
        self.program, self.means = centred(split(program))
        self.mode = mode
        self.dependences = Dependences(self.program)
        # In real arithmetic nothing remains of a mean.
        self.signs = Signs(self.program, {mean.rest: Sign.ZERO for mean in self.means})
        self.taken = {name for definition in self.program.definitions for name in definition.names}
        self.groups: list[Group] = []
        self.plans: dict[str, StagePlan] = {}
        self.verdicts: dict[str, StageVerdict] = {}

    def run(self) -> Fusion:
        for stage in self.dependences.stages:
            self._place(stage)
        sweeps = tuple(self._sweep(group) for group in self._sorted())
        verdicts = tuple(self.verdicts[stage] for stage in self.dependences.stages)
        return Fusion(self.program, sweeps, verdicts)

    def _place(self, name: str) -> None:
        """Put a stage into the sweep of what it reads, or into a later one."""
        joined = self._union_read(name)
        if joined is not None and self._carry(name, joined):
            return
        stage = self._stage(name, ())
        self.plans[name] = Plain(stage)
        if name not in self.verdicts:
            self.verdicts[name] = explain.plain(stage)
        if stage.reduce.monoid is not None:
            self._check_laws(stage, stage.reduce.monoid)
        for group in self.groups:
            independent = self.dependences.reads(name).isdisjoint(group.stages)
            free = {self.dependences.free(other) for other in group.stages}
            alike = independent and self.dependences.free(name) in free
            if alike and compatible(self.dependences, group, name):
                self._join(group, name)
                return
        self.groups.append(Group(self.dependences.axes(name), [name]))

    def _union_read(self, name: str) -> tuple[Group, ...] | None:
        """Return the latest sweeps over the same axes that a stage reads, if it may join them."""
        if self.mode == "never":
            return None
        axes = frozenset(self.dependences.axes(name))
        reads = self.dependences.reads(name)
        read = [
            group
            for group in self.groups
            if frozenset(group.axes) == axes and not reads.isdisjoint(group.stages)
        ]
        latest = tuple(
            group
            for group in read
            if not any(
                other is not group
                and any(self.dependences.depends(s, group.stages) for s in other.stages)
                for other in read
            )
        )
        union = Group(self.dependences.axes(name), [s for group in latest for s in group.stages])
        if latest and compatible(self.dependences, union, name):
            return latest
        return None

    def _carry(self, name: str, groups: tuple[Group, ...]) -> bool:
        """Carry a stage with the groups that it reads, which become one; return success."""
        together = [stage for group in groups for stage in group.stages]
        stage = self._stage(name, together)
        view = self._view(together, self.dependences.axes(name))
        sums = {
            other: self._stage(other, together)
            for other in together
            if self.dependences.reduce(other).op == "sum"
        }
        try:
            plan = derive(stage, view, self.signs, sums, stable=self.mode != "always")
        except Declined as declined:
            self.verdicts[name] = explain.declined(stage, view, self.signs, declined)
            self._require(self.verdicts[name], stage)
            return False
        self.verdicts[name] = explain.fused(plan, view, self.signs)
        if not isinstance(self.verdicts[name], Fused):
            self._require(self.verdicts[name], stage)
            return False
        self.plans[name] = plan
        first, *others = groups
        for other in others:
            self.groups.remove(other)
            for member in other.stages:
                self._join(first, member)
        self._join(first, name)
        return True

    def _join(self, group: Group, name: str) -> None:
        if self.dependences.reduce(name).op in ORDERED:
            group.axes = self.dependences.axes(name)
        group.stages.append(name)
        order = list(self.dependences.stages)
        group.stages.sort(key=order.index)

    def _check_laws(self, stage: Stage, monoid: Monoid) -> None:
        known = laws(monoid)
        if known.broken is not None:
            law, states = known.broken
            raise FusionError(
                f"monoid {monoid.name!r} breaks {law}: {states}",
                hint="its result would depend on how the axis is cut into tiles",
                span=stage.reduce.span,
            )
        self.verdicts[stage.name] = explain.lawful(stage, known)

    def _require(self, verdict: StageVerdict, stage: Stage) -> None:
        if self.mode != "require" or isinstance(verdict, Fused):
            return
        witness = f"; {verdict.witness} breaks it" if isinstance(verdict, Refuted) else ""
        raise FusionError(
            f"{stage.name!r} cannot share the sweep of what it reads: "
            f"it needs {verdict.obligation}{witness}",
            hint='fuse="auto" computes it in a further sweep',
            span=stage.reduce.span,
        )

    def _stage(self, name: str, together: Sequence[str]) -> Stage:
        """Return a stage with what reads `together` written out."""
        reduce = self.dependences.reduce(name)
        operands = tuple(self.dependences.inlined(e, together) for e in reduce.operands)
        condition = reduce.condition and self.dependences.inlined(reduce.condition, together)
        return Stage(self.dependences.stages[name].names, reduce, operands, condition)

    def _view(self, together: Sequence[str], axes: tuple[str, ...]) -> View:
        dependences = self.dependences
        return View(axes, dependences.names(together), dependences.build, dependences.pool)

    def _sorted(self) -> list[Group]:
        """Return the groups in an order in which each only reads finished stages."""
        done: set[str] = set()
        pending, ordered = list(self.groups), []
        while pending:
            for group in pending:
                reads = {r for stage in group.stages for r in self.dependences.reads(stage)}
                if reads <= done.union(group.stages):
                    break
            else:
                raise AssertionError("the sweeps read each other in a circle")
            pending.remove(group)
            ordered.append(group)
            done.update(group.stages)
        return ordered

    def _sweep(self, group: Group) -> Sweep:
        view = self._view(group.stages, group.axes)
        plans = [self.plans[stage] for stage in group.stages]
        centres = [centre for plan in plans for centre in finish.centres_of(plan)]
        centres += related_centres(plans, view, self.signs)
        emitter = Emitter(view, self.signs, centres, self.taken)
        means = [self.dependences.inlined(mean.value, group.stages) for mean in self.means]
        distances = Distances(emitter, self.signs, means)
        lets: list[Let] = []
        for plan in plans:
            lets.extend(finish.emit(plan, emitter, distances, self.signs))
        names = tuple(n for stage in group.stages for n in self.dependences.stages[stage].names)
        return arranged(emitter, group.axes, names, lets)
