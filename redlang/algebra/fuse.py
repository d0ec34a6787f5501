"""Which stages share a sweep, and the incremental form of each sweep.

Every stage ends in exactly one sweep. It joins the sweep of the results that it reads over the same
axes if it can be carried there, else it gets a later one, where those results are constants: no
correct program is refused. Independent stages over the same axes share a sweep where their free
axes agree, or where both read what is best reduced at each of its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from redlang.algebra import explain, finish
from redlang.algebra.cascade import Dependences, Group, Groups
from redlang.algebra.centre import centred
from redlang.algebra.derive import Declined, Plain, Stage, StagePlan, derive
from redlang.algebra.distance import Distances
from redlang.algebra.incremental import Emitter
from redlang.algebra.monoids import laws
from redlang.algebra.operators import Sign
from redlang.algebra.reading import Reading
from redlang.algebra.related import related_centres
from redlang.algebra.sharing import conjuncts
from redlang.algebra.signs import Signs
from redlang.algebra.split import split
from redlang.algebra.steps import arranged
from redlang.algebra.terms import View
from redlang.algebra.verdicts import Fused, Refuted, StageVerdict
from redlang.errors import FusionError
from redlang.ir.incremental import Let, Sweep
from redlang.ir.program import Monoid, Program
from redlang.source import Span

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
    return _fused(program, program.places, mode)


@lru_cache(maxsize=256)
def _fused(program: Program, places: tuple[Span, ...], mode: Mode) -> Fusion:
    # Equal programs share a result where they stand in the same place: it names places too.
    del places
    return _Fuser(program, mode).run()


class _Fuser:
    """Places the stages of one program, one after another."""

    def __init__(self, program: Program, mode: Mode) -> None:
        self.program, self.means = centred(split(program))
        self.mode = mode
        self.dependences = Dependences(self.program)
        # In real arithmetic nothing remains of a mean.
        self.known = {mean.rest: Sign.ZERO for mean in self.means}
        self.rests = frozenset(self.known)
        self.signs = Signs(self.program, self.known)
        # No name means two things in one fusion: sweeps may end in the same loops.
        self.taken = {name for definition in self.program.definitions for name in definition.names}
        self.groups = Groups(self.dependences)
        self.plans: dict[str, StagePlan] = {}
        self.verdicts: dict[str, StageVerdict] = {}

    def run(self) -> Fusion:
        for stage in self.dependences.stages:
            self._place(stage)
        sweeps = tuple(self._sweep(group) for group in self.groups.sorted())
        verdicts = tuple(self.verdicts[stage] for stage in self.dependences.stages)
        return Fusion(self.program, sweeps, verdicts)

    def _place(self, name: str) -> None:
        """Put a stage into the sweep of what it reads, or into a later one."""
        joined = self.groups.latest_read(name)
        if joined and self._may_carry(name, joined) and self._carry(name, joined):
            return
        stage = self._stage(name, ())
        self.plans[name] = Plain(stage)
        if name not in self.verdicts:
            self.verdicts[name] = explain.plain(stage, self._view((), stage.reduce.axes))
        if stage.reduce.monoid is not None:
            self._check_laws(stage, stage.reduce.monoid)
        alike = self.groups.independent(name)
        self.groups.join(name, (alike,) if alike else ())

    def _may_carry(self, name: str, groups: tuple[Group, ...]) -> bool:
        """Return whether the mode admits that a stage is carried.

        The rest of a mean is no result that anybody waits for: what reads only rests of a sweep is
        carried with them in any mode.
        """
        if self.mode != "never":
            return True
        together = {stage for group in groups for stage in group.stages}
        return self.dependences.reads(name) & together <= self.rests

    def _carry(self, name: str, groups: tuple[Group, ...]) -> bool:
        """Carry a stage with the groups that it reads, which become one; return success."""
        together = [stage for group in groups for stage in group.stages]
        stage = self._stage(name, together)
        view = self._view(together, self.dependences.axes(name))
        sums, maxima = (
            {
                other: self._stage(other, together)
                for other in together
                if self.dependences.reduce(other).op == op
            }
            for op in ("sum", "max")
        )
        # Reductions that may have seen nothing where this one sees something have other signs.
        signs = Signs(self.program, self.known, conjuncts(stage.reduce.condition))
        try:
            plan = derive(stage, view, signs, sums, maxima, stable=self.mode != "always")
        except Declined as declined:
            self.verdicts[name] = explain.declined(stage, view, signs, declined)
            self._require(self.verdicts[name], stage)
            return False
        self.verdicts[name] = explain.fused(plan, view, signs)
        if not isinstance(self.verdicts[name], Fused):
            self._require(self.verdicts[name], stage)
            return False
        self.plans[name] = plan
        self.groups.join(name, groups)
        return True

    def _check_laws(self, stage: Stage, monoid: Monoid) -> None:
        known = laws(monoid)
        if known.broken is not None:
            law, states = known.broken
            raise FusionError(
                f"monoid {monoid.name!r} breaks {law}: {states}",
                hint="its result would depend on how the axis is cut into tiles",
                span=stage.reduce.span,
            )
        self.verdicts[stage.name] = explain.lawful(stage, known, self._view((), stage.reduce.axes))

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
        reading = Reading(self.signs, dependences.opened(together))
        names = dependences.names(together)
        return View(axes, names, dependences.build, dependences.pool, reading)

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
        lets = [finish.finite(let, view.build) if let.name in self.rests else let for let in lets]
        names = tuple(n for stage in group.stages for n in self.dependences.stages[stage].names)
        return arranged(emitter, group.axes, names, lets)
