"""Which element steps share which loops.

Steps of a straight line are put into one nest of loops, outermost axis first: all steps that run
over an axis share its loop as long as none of them needs a result that this loop only completes (a
fold over the axis). Everything else about a value is then visible in the tree: a value whose
definition and uses lie in one iteration needs no memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from redlang.codegen.steps import Begin, Step, step_axes, step_expressions, step_reads, step_writes
from redlang.ir import loops, walk
from redlang.ir.program import Apply, Expr, Index, Load, Ref

# A window slides: neighbours along a kept axis share all but one of their elements, and results
# are adjacent there too, so that it outvotes what lies along the window.
WINDOW_VOTES = 6


@dataclass(slots=True, eq=False)
class Leaf:
    """A step at one point of all loops around it."""

    step: Step


@dataclass(slots=True, eq=False)
class For:
    """A loop over the current range of an axis."""

    axis: str
    body: list[Node]


@dataclass(slots=True, eq=False)
class Tiles:
    """A loop over tiles of an axis."""

    loop: loops.Loop
    body: list[Node]

    @property
    def axis(self) -> str:
        """Return the axis."""
        return self.loop.axis


@dataclass(slots=True, eq=False)
class If:
    """One of two bodies, by a condition without axes."""

    condition: Expr
    then: list[Node]
    otherwise: list[Node]


@dataclass(slots=True, eq=False)
class Multiply:
    """A matrix product of two operands that are in memory."""

    contract: loops.Contract


Node: TypeAlias = Leaf | For | Tiles | If | Multiply


@dataclass(frozen=True, slots=True)
class Facts:
    """What nesting needs to know of a kernel.

    Attributes:
        order: The program's axes.
        slots: The axis that counts the slots of each top-k value.
        axes: The axes of every value.
        unit: The axis along which each array, result and workspace has stride 1, if any.
        votes: Further votes for the innermost axis of steps that read a value.
        going_on: States whose folds go on from the value that they have.
    """

    order: tuple[str, ...]
    slots: Mapping[str, str]
    axes: Mapping[str, tuple[str, ...]]
    unit: Mapping[str, str | None]
    votes: Mapping[str, str] = field(default_factory=dict)
    going_on: frozenset[str] = frozenset()

    def slot(self, step: Step) -> str | None:
        """Return the slot axis of a step that handles whole top-k lists."""
        if isinstance(step, Begin):
            step = step.fold
        if isinstance(step, loops.Fold | loops.Combine) and step.op == "topk":
            return self.slots[step.names[0]]
        return None

    def step_axes(self, step: Step) -> frozenset[str]:
        """Return the axes that a step runs over."""
        return step_axes(step, self.slot(step))


def innermost(step: Step, facts: Facts) -> Counter[str]:
    """Return how strongly the memory accesses of a step ask for each axis as the innermost."""
    axes = facts.step_axes(step)
    folded = step.over if isinstance(step, loops.Fold) else ()
    votes: Counter[str] = Counter()
    every = (n for expr in step_expressions(step) for n in walk.nodes(expr))
    nodes = dict.fromkeys(n for n in every if isinstance(n, Load | Ref))
    # An index that is read to read something else counts little beside that.
    minor = {load for node in nodes if isinstance(node, Load) for load in _loads_in(node)}
    for node in nodes:
        if isinstance(node, Load):
            unit = facts.unit.get(node.array)
            if unit is not None and _runs_along(node, unit, facts):
                votes[unit] += 1 if node in minor else 4
            sliding = _slides_along(node, unit, facts)
            for axis in sliding.difference(folded) or sliding:
                votes[axis] += WINDOW_VOTES
        else:
            unit = facts.votes.get(node.name) or facts.unit.get(node.name)
            if unit in axes:
                votes[unit] += 2
    if isinstance(step, loops.Store):
        unit = facts.unit.get(step.target)
        if unit in axes:
            votes[unit] += 4
    return Counter({axis: count for axis, count in votes.items() if axis in axes})


def _loads_in(load: Load) -> list[Load]:
    """Return the loads in the subscripts of a load."""
    inside = (node for part in load.subscripts for node in walk.nodes(part))
    return [node for node in inside if isinstance(node, Load)]


def _runs_along(load: Load, unit: str, facts: Facts) -> bool:
    """Say whether consecutive indices of the axis `unit` read adjacent elements."""
    places = facts.axes[load.array]
    return any(
        axis == unit and isinstance(part, Index) and part.axis == unit
        for axis, part in zip(places, load.subscripts, strict=True)
    )


def _slides_along(load: Load, unit: str | None, facts: Facts) -> frozenset[str]:
    """Return the axes along which a sum of indices reads adjacent elements."""
    for axis, part in zip(facts.axes[load.array], load.subscripts, strict=True):
        if axis == unit and not isinstance(part, Index):
            return _unit_steps(part)
    return frozenset()


def _unit_steps(place: Expr) -> frozenset[str]:
    """Return the axes along which a place moves by one element at each step."""
    match place:
        case Index(axis=axis):
            return frozenset({axis})
        case Apply(op="clip" | "minimum", arguments=(inner, *_)):
            return _unit_steps(inner)
        case Apply(op="add" | "sub", arguments=(left, right)):
            sides = _unit_steps(left), _unit_steps(right)
            apart = frozenset(left.type.axes) ^ frozenset(right.type.axes)
            return (sides[0] | sides[1]) & apart
        case _:
            return frozenset()


def loop_order(steps: Sequence[Step], fixed: frozenset[str], facts: Facts) -> list[str]:
    """Return the axes of `steps`, outermost first.

    Each step wants one axis inside all others of its own, the one along which memory is adjacent;
    next, folded axes stand inside kept ones, so that accumulators stay in registers. Where wishes
    differ, the stronger one is granted.
    """
    over = [facts.step_axes(step) - fixed for step in steps]
    before: Counter[tuple[str, str]] = Counter()
    folded: set[str] = set()
    for step, axes in zip(steps, over, strict=True):
        mine = axes & set(step.over) if isinstance(step, loops.Fold) else set()
        folded |= mine
        if len(axes) < 2 or is_minor(axes, over):
            continue
        votes = Counter({a: n for a, n in innermost(step, facts).items() if a in axes})
        last = max(axes, key=lambda axis: (votes[axis], _place(axis, facts)))
        for axis in axes - {last}:
            before[axis, last] += 1 + votes[last]
        for kept, fold in itertools.product(axes - mine, mine):
            before[kept, fold] += 1
    order: list[str] = []
    remaining = set[str]().union(*over)

    def reluctance(axis: str) -> tuple[int, bool, int]:
        wishes = sum(before[other, axis] - before[axis, other] for other in remaining)
        return wishes, axis in folded, _place(axis, facts)

    while remaining:
        order.append(min(remaining, key=reluctance))
        remaining.remove(order[-1])
    return order


def is_minor(axes: frozenset[str], all_axes: Iterable[frozenset[str]]) -> bool:
    """Say whether steps over `axes` are few beside others, which then decide the order."""
    return any(axes < other for other in all_axes)


def _place(axis: str, facts: Facts) -> int:
    return facts.order.index(axis) if axis in facts.order else len(facts.order)


def nest(steps: Sequence[Step], fixed: frozenset[str], facts: Facts) -> list[Node]:
    """Return loops that run `steps`; axes in `fixed` have one index already."""
    return _Nesting(facts, loop_order(steps, fixed, facts)).nest(list(steps), fixed)


class _Nesting:
    def __init__(self, facts: Facts, order: list[str]) -> None:
        self.facts = facts
        self.order = order

    def nest(self, steps: list[Step], done: frozenset[str]) -> list[Node]:
        """Return loops for `steps` inside loops over the axes `done`."""
        open_axes = {axis for step in steps for axis in self.facts.step_axes(step) - done}
        axis = next((a for a in self.order if a in open_axes), None)
        if axis is None:
            return [leaf for step in steps for leaf in self.leaves(step, done)]
        nodes: list[Node] = []
        for inside, run in self.runs(steps, axis):
            if not inside:
                nodes += self.nest(run, done)
                continue
            starting: list[Step] = [
                Begin(step)
                for step in run
                if isinstance(step, loops.Fold) and axis in step.over and not self.begun(step, done)
            ]
            nodes += self.nest(starting, done) if starting else []
            nodes.append(For(axis, self.nest(run, done | {axis})))
        return nodes

    def leaves(self, step: Step, done: frozenset[str]) -> list[Node]:
        """Return a step; a fold over a single element begins right before it."""
        if isinstance(step, loops.Fold) and not self.begun(step, done):
            return [Leaf(Begin(step)), Leaf(step)]
        return [Leaf(step)]

    def begun(self, fold: loops.Fold, done: frozenset[str]) -> bool:
        """Say whether a fold has a result to add to: that of a state, or of a loop around it."""
        return fold.names[0] in self.facts.going_on or bool(set(fold.over) & done & set(self.order))

    def runs(self, steps: list[Step], axis: str) -> list[tuple[bool, list[Step]]]:
        """Cut `steps` into runs inside and outside a loop over `axis`, in a valid order.

        Each step goes into the earliest run that its dependences allow. Folds that are written in
        a way of their own get innermost loops of their own.
        """
        runs: list[tuple[bool, list[Step]]] = []
        kinds: list[tuple[bool, str]] = []
        where: list[int] = []
        for number, step in enumerate(steps):
            inside = axis in self.facts.step_axes(step)
            kind = (inside, self.manner(step, axis))
            earliest = 0
            for other, place in zip(steps[:number], where, strict=True):
                shared = dependences(other, step)
                if not shared:
                    continue
                together = kinds[place] == kind and (
                    not inside or all(axis in self.facts.axes[name] for name in shared)
                )
                earliest = max(earliest, place if together else place + 1)
            place = next((i for i in range(earliest, len(runs)) if kinds[i] == kind), len(runs))
            if place == len(runs):
                runs.append((inside, []))
                kinds.append(kind)
            runs[place][1].append(step)
            where.append(place)
        return runs

    def manner(self, step: Step, axis: str) -> str:
        """Return how an innermost loop over `axis` runs a step, empty for as usual."""
        if not isinstance(step, loops.Fold) or axis not in step.over:
            return ""
        mine = self.facts.step_axes(step)
        return MANNERS.get(step.op, "") if [a for a in self.order if a in mine][-1] == axis else ""


MANNERS = {
    "argmax": "search",
    "argmin": "search",
    "topk": "search",
    "mantissa": "scaled",
    "monoid": "in order",
}
"""Folds that are no plain accumulation: most elements change nothing in a search, a product is
scaled now and then, a monoid takes elements in order."""


def dependences(first: Step, second: Step) -> frozenset[str]:
    """Return the names because of which `second` must not run before `first`."""
    written, rewritten = step_writes(first), step_writes(second)
    return (written & (step_reads(second) | rewritten)) | (step_reads(first) & rewritten)


Path: TypeAlias = tuple[For | Tiles, ...]
"""Loops that give an axis one index at a time, outermost first."""


def walk_nodes(nodes: Iterable[Node], visit: Callable[[Node, Path], None], path: Path = ()) -> None:
    """Call `visit` with each node and the loops around it that go element by element."""
    for node in nodes:
        visit(node, path)
        match node:
            case For(body=body):
                walk_nodes(body, visit, (*path, node))
            case Tiles(loop=loop, body=body):
                walk_nodes(body, visit, (*path, node) if loop.tile == 1 else path)
            case If(then=then, otherwise=otherwise):
                walk_nodes(then, visit, path)
                walk_nodes(otherwise, visit, path)
            case Leaf() | Multiply():
                pass
