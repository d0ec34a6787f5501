"""Choose a plan for a GPU: all candidates, their estimated times, the least of them.

The choice is a function of the program, the shape class, the layout class and the device, so that
it is the same in every process. A nest's candidates are ranked, not only the best one kept: a plan
that the compiler cannot fit in registers gives way to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from redlang.ir.program import Program
from redlang.schedule.candidates import candidates, pieces
from redlang.schedule.device import Device
from redlang.schedule.estimates import Estimate
from redlang.schedule.facts import SHORT, Facts, Layout, power_above, unique
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.model import estimate, segments
from redlang.schedule.nests import Nest, are_alike
from redlang.schedule.parts import Candidate, Part
from redlang.schedule.traffic import kept

LEAST_CLASS = 4
"""Rows up to this length share one class."""
SHORT_CLASS, LONG_CLASS = 64, 512
SMALL = 1 << 14
"""Calls of fewer elements are as short as a launch, whatever their plan.

They have two classes of rows up to `LONG_CLASS`, in which alignment does not count.
"""
MUCH = 1024
"""Bytes from which on a matrix plan spills so much that a little narrower one does, too."""
KEPT = 24
"""Ranked candidates that are kept for each nest."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its estimate.

    Attributes:
        candidate: The plans of its parts.
        estimates: One for each part.
    """

    candidate: Candidate
    estimates: tuple[Estimate, ...]

    @property
    def time_us(self) -> float:
        """Return the time of all parts."""
        return sum(e.time_us for e in self.estimates) - self.estimates[-1].hidden_us


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """Extents as far as plans depend on them.

    Attributes:
        extents: Representative extents of the class.
        exact: Axes whose extent is that of the call: a thread holds them whole.
        small: Whether the call is as short as a launch.
    """

    extents: tuple[tuple[str, int], ...]
    exact: tuple[str, ...]
    small: bool = False


def shape_class(
    program: Program, nests: tuple[Nest, ...], extents: Mapping[str, int]
) -> ShapeClass:
    """Return the class of a call's extents."""
    inside: dict[str, bool] = {}
    points = set[str]()
    for nest in nests:
        facts = Facts(program, nest, {}, Layout({}, {}))
        points |= facts.points
        held = _inside(facts)
        for axis in held:
            inside[axis] = inside.get(axis, False) or len(held) > 1
    fixed = {a.name for a in program.axes if isinstance(a.extent, int)}
    small = prod(extents.values()) < SMALL
    whole = {axis for axis, beside in inside.items() if beside} | (set() if small else points)
    exact = {
        axis
        for axis, extent in extents.items()
        if extent and (axis in fixed or (axis in whole and extent <= SHORT))
    }
    classed = {
        axis: extent if axis in exact else _row(extent, small) if axis in inside else _count(extent)
        for axis, extent in extents.items()
    }
    return ShapeClass(tuple(classed.items()), tuple(sorted(exact)), small)


def _inside(facts: Facts) -> list[str]:
    """Return the axes that a unit of a nest has more than one element of, grid tiles aside."""
    axes = unique([*facts.swept, *facts.inner, *facts.extra, *facts.mapped])
    return [a for a in axes if a not in facts.slots]


def _row(extent: int, small: bool) -> int:
    """Round a row's length up: to powers of two for short rows, four an octave from 4096 on."""
    if small and extent <= LONG_CLASS:
        return SHORT_CLASS if extent <= SHORT_CLASS else LONG_CLASS
    if extent <= 2 * LONG_CLASS:
        return max(LEAST_CLASS, power_above(extent))
    octave = 1 << (extent - 1).bit_length() - 1
    step = octave // (2 if octave < 4096 else 4)
    return -(-extent // step) * step


def _count(extent: int) -> int:
    """Round a number of units up, four classes an octave; none is planned like one."""
    if extent <= 8:
        return max(1, extent)
    step = (1 << (extent - 1).bit_length() - 1) // 4
    return -(-extent // step) * step


def layout_class(layout: Layout, shape: ShapeClass, sizes: Mapping[str, int]) -> Layout:
    """Return a layout as far as plans depend on it.

    Args:
        layout: Of a call.
        shape: Its class.
        sizes: Bytes of an element of each array.
    """
    extents = dict(shape.extents)

    def coarse(name: str, alignment: int) -> int:
        axis = layout.unit.get(name)
        if axis is None or (shape.small and extents[axis] <= LONG_CLASS):
            return sizes[name]
        return max(alignment, sizes[name])

    return replace(layout, alignment={n: coarse(n, a) for n, a in layout.alignment.items()})


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan that was measured.

    Attributes:
        name: What tells it from the others of its nest.
        family: Its kind.
        time_us: Of the whole program with it.
    """

    name: str
    family: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The plans of a program's nests, best first, for one class and device.

    Attributes:
        shape, layout: The class.
        ranked: The plans of each nest.
        measured: What was measured of each nest's plans, the best first; nothing if nothing was.
        form: The name of the program's form.
    """

    shape: ShapeClass
    layout: Layout
    ranked: tuple[tuple[Ranked, ...], ...]
    measured: tuple[tuple[Measured, ...], ...] = ()
    form: str = ""

    @property
    def best(self) -> tuple[Ranked, ...]:
        """Return the best candidate of each nest."""
        return tuple(options[0] for options in self.ranked)

    @property
    def time_us(self) -> float:
        """Return the time of the best candidates."""
        return sum(ranked.time_us for ranked in self.best)


def search(
    program: Program,
    fused: tuple[Nest, ...],
    separate: tuple[Nest, ...],
    shape: ShapeClass,
    layout: Layout,
    device: Device,
) -> Choice:
    """Return ranked plans for every nest.

    Args:
        program: The normalised program.
        fused: Its nests with incremental sweeps.
        separate: The same nests with one sweep a dependent stage; another grouping is ignored.
        shape: The class of the extents.
        layout: The class of the layout.
        device: What it runs on.
    """
    alike = are_alike(fused, separate)
    extents = dict(shape.extents)
    ranked = []
    warm = frozenset[str]()
    for number, nest in enumerate(fused):
        apart = separate[number] if alike else None
        found = candidates(program, nest, apart, extents, layout, device.cluster)
        whole = rank(program, found, extents, layout, device, warm)
        own = []
        begun = warm
        for piece in pieces(program, nest, extents, layout, device.cluster):
            own.append(rank(program, piece, extents, layout, device, begun))
            begun |= kept(Facts(program, piece[0].parts[0].nest, extents, layout), device)
        plans = [*whole, *_joined(own)]
        if nest is not fused[-1]:
            warm |= kept(Facts(program, nest, extents, layout), device)
            plans = [_shown(r) for r in plans]
        ranked.append(_in_order(plans))
    return Choice(shape, layout, tuple(ranked))


def _shown(ranked: Ranked) -> Ranked:
    """Return a plan that others of the same call follow: nothing of it is hidden."""
    return replace(ranked, estimates=tuple(replace(e, hidden_us=0.0) for e in ranked.estimates))


def _joined(own: Sequence[Sequence[Ranked]]) -> Iterator[Ranked]:
    """Yield plans of the pieces of a nest side by side: the best ones, then the next."""
    for number in range(min(KEPT, max(map(len, own), default=0))):
        chosen = [plans[min(number, len(plans) - 1)] for plans in own]
        parts = tuple(part for r in chosen for part in r.candidate.parts)
        estimates = tuple(estimate for r in chosen for estimate in r.estimates)
        yield Ranked(Candidate("cut", parts), estimates)


def following(options: Sequence[Ranked], number: int, spill_bytes: int) -> int:
    """Return the number of the plan to try after one that was refused.

    After one that spills, those of its kind are passed over that need as many registers and may
    have no more; after a matrix plan that spills much, those with more than half its columns.
    """
    refused = options[number]
    number += 1
    while number < len(options) and _as_tight(options[number], refused, spill_bytes):
        number += 1
    return number


def _as_tight(ranked: Ranked, refused: Ranked, spill_bytes: int) -> bool:
    """Return whether a plan has no register to spare that a plan of its kind lacks."""
    parts, others = ranked.candidate.parts, refused.candidate.parts
    if not spill_bytes or len(parts) > 1 or len(others) > 1:
        return False
    (part,), (other,) = parts, others
    if part.matrix or other.matrix:
        much = spill_bytes >= MUCH and part.nest == other.nest
        return much and _as_wide(part.matrix, other.matrix)
    return (
        part.nest == other.nest
        and (part.plan.kind, part.across) == (other.plan.kind, other.across)
        and part.threads.registers <= other.threads.registers
        # Registers of a narrow piece need not lie side by side.
        and _width(part) >= _width(other)
        and _held(part) >= _held(other)
        and ranked.estimates[0].registers >= refused.estimates[0].registers
    )


def _as_wide(plan: MatrixPlan | None, other: MatrixPlan | None) -> bool:
    """Return whether a plan has the rows of another and more than half of all its columns."""
    if plan is None or other is None or (plan.rows, plan.unit) != (other.rows, other.unit):
        return False
    widths = dict(other.columns)
    return all(2 * width > widths.get(axis, 0) for axis, width in plan.columns)


def _order(ranked: Ranked) -> tuple[float, int]:
    """Order by time; of plans that are as good as equal, wide accesses first."""
    return round(ranked.time_us, 2), -max(map(_width, ranked.candidate.parts))


def _held(part: Part) -> int:
    """Return how many elements of a tile a thread has at most."""
    return prod(spread.count for spread in part.threads.spreads)


def _width(part: Part) -> int:
    return max((s.width for s in part.threads.spreads), default=1)


def _at_once(ranked: Ranked, device: Device) -> Candidate | None:
    """Return a plan with fewer registers, if all its blocks run at once then, and hardly before.

    A few blocks more than the SMs hold take as long as twice as many.
    """
    candidate = ranked.candidate
    if len(candidate.parts) > 1 or candidate.family != "on-chip":
        return None
    (part,), (found,) = candidate.parts, ranked.estimates
    if part.threads.shared or part.threads.stored or len(part.nest.sweeps) == 1:
        # The fused form has no register to spare.
        return None
    wanted = -(-found.blocks // device.sms)
    if not found.occupancy.blocks < wanted <= 2 * found.occupancy.blocks:
        return None
    threads = replace(part.threads, min_blocks=wanted)
    return Candidate(candidate.family, (replace(part, threads=threads),))


def rank(
    program: Program,
    found: list[Candidate],
    extents: Mapping[str, int],
    layout: Layout,
    device: Device,
    warm: frozenset[str] = frozenset(),
) -> tuple[Ranked, ...]:
    """Return candidates with their estimates, fastest first; the fallback stays last.

    Args:
        program: The normalised program.
        found: The candidates.
        extents: Those of the class.
        layout: Of the arrays.
        device: What they run on.
        warm: The arrays that kernels ahead of these have left in the L2 cache.
    """
    known: dict[int, Facts] = {}

    def facts(part: Part) -> Facts:
        if id(part.nest) not in known:
            known[id(part.nest)] = Facts(program, part.nest, extents, layout)
        return known[id(part.nest)]

    ranked = [
        Ranked(c, tuple(estimate(part, facts(part), device, warm) for part in c.parts))
        for c in found
        if not any(
            p.across and p.classes is None and segments(p, extents, device) == 1 for p in c.parts
        )
    ]
    close = [c for c in (_at_once(r, device) for r in ranked) if c is not None]
    ranked += [
        Ranked(c, tuple(estimate(p, facts(p), device, warm) for p in c.parts)) for c in close
    ]
    return _in_order(ranked)


def _in_order(ranked: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Return the fastest plans, fastest first, and the fallback last."""
    held = [r for r in ranked if r.candidate.family == "held"]
    others = [r for r in ranked if r.candidate.family != "held"]
    others.sort(key=_order)
    held.sort(key=_order)
    return (*others[:KEPT], *held)
