"""Group sweeps into nests: what shares one grid, what is computed inside what, what goes to memory.

A *nest* is a set of sweeps and results that one kernel can serve, unit by unit, over common grid
axes. A sweep is *inner* to another when its result varies along the other's swept axes: it is then
evaluated tile by tile inside that sweep (the scores of an attention). Where that would repeat work
for grid axes that the inner result does not have, those axes are kept whole in a unit if the result
is larger than all that it is made of and they are not wide; else the result is *exported* to memory
by a nest of its own. Which axes are wide is all that is known of extents here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from redlang.ir.incremental import Sweep
from redlang.ir.program import Program
from redlang.ir.spread import spreads
from redlang.schedule.narrow_stages import apart
from redlang.schedule.short_axes import joined_sweeps, shared_axes
from redlang.schedule.uses import Uses, step_expressions

HELD = 512
"""The longest axis of a result that a unit keeps whole for the sake of what is computed inside it.

On GPUs, classes of extents end here, so that a class is on one side."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Sweeps and results over common grid axes.

    Attributes:
        base: Axes that every stage and result here has: the grid, before any plan.
        sweeps: The sweeps that run one after another in a unit, in order.
        inner: Sweeps that may be evaluated inside them.
        results: Numbers of the results that are stored here.
        exports: Stages that later nests read from memory.
    """

    base: tuple[str, ...]
    sweeps: tuple[Sweep, ...]
    inner: tuple[Sweep, ...]
    results: tuple[int, ...]
    exports: tuple[str, ...]


def are_alike(nests: Sequence[Nest], others: Sequence[Nest]) -> bool:
    """Say whether each of some nests may stand for the one of its number among others.

    What one nest leaves in memory, another reads, whichever form of each is chosen.
    """
    return len(nests) == len(others) and all(
        (a.base, a.results, a.exports) == (b.base, b.results, b.exports)
        for a, b in zip(nests, others, strict=True)
    )


def wide_axes(extents: Mapping[str, int]) -> frozenset[str]:
    """Return the axes that no unit keeps whole for the sake of what is computed inside it."""
    return frozenset(axis for axis, extent in extents.items() if extent > HELD)


def find_nests(
    program: Program,
    sweeps: tuple[Sweep, ...],
    wide: frozenset[str] = frozenset(),
    *,
    outside: bool = False,
    nested: frozenset[str] | None = None,
    narrow: bool = False,
) -> tuple[Nest, ...]:
    """Return the nests of a fused program in an order in which they can run.

    Args:
        program: A program, with the sweeps that compute it.
        sweeps: Those.
        wide: Axes that no unit keeps whole for the sake of what is computed inside it.
        outside: Whether what spreads goes to memory, wherever it is read.
        nested: Axes that may be swept inside another sweep; None for all. A sweep over another
            axis goes to memory, unless it spreads.
        narrow: Whether units have those of the axes `nested` whole that much work lacks.
    """
    sweeps = apart(
        Uses(program, sweeps), sweeps, lambda a: a in wide if nested is None else a not in nested
    )
    uses = Uses(program, sweeps)
    spread = {id(s) for s in sweeps if any(spreads(uses.definitions, x) for x in s.stages)}
    long = {id(s) for s in sweeps if nested is not None and not nested.issuperset(s.axes)}
    first = (spread if outside else set()) | (long - spread)
    bases = {id(s): _grid_of(uses, s, spread - first, wide) for s in sweeps}
    tops = first | _top_sweeps(uses, sweeps, bases)
    bases = {id(s): _grid_of(uses, s, spread - tops, wide) for s in sweeps}
    alone = set[int]()
    if nested is not None:
        # A matrix unit has one loop: what is computed in it is computed again for another.
        inside = spread - tops
        alone = {id(s) for s in sweeps if any(id(r) in inside for r in uses.read_by(s))}
    shared: dict[int, frozenset[str]] = {}
    if narrow and nested is not None:
        shared = {id(s): shared_axes(uses, s, nested) for s in sweeps if id(s) in tops}
        bases |= {number: bases[number] - axes for number, axes in shared.items()}
    groups = _group(uses, [s for s in sweeps if id(s) in tops], bases, alone)
    inner = tuple(s for s in sweeps if id(s) not in tops)
    if any(shared.values()):
        groups = [
            (base, joined_sweeps(uses, own) if any(shared[id(s)] for s in own) else own)
            for base, own in groups
        ]
        uses = Uses(program, (*inner, *(s for _, own in groups for s in own)))
    return _place_results(uses, groups, inner)


def _grid_of(uses: Uses, sweep: Sweep, inside: set[int], wide: frozenset[str]) -> frozenset[str]:
    """Return the axes of a sweep's grid if the sweeps `inside`, which spread, are done in it."""
    grid = uses.base(sweep)
    for read in uses.read_by(sweep):
        own = uses.base(read)
        if id(read) in inside and not own.isdisjoint(sweep.axes):
            grid &= own | wide
    return grid


def _top_sweeps(
    uses: Uses, sweeps: tuple[Sweep, ...], bases: Mapping[int, frozenset[str]]
) -> set[int]:
    """Return (by id) the sweeps that run on their own and not only inside others."""
    readers: dict[int, list[Sweep]] = {id(s): [] for s in sweeps}
    for sweep in sweeps:
        for read in uses.read_by(sweep):
            readers[id(read)].append(sweep)
    tops: set[int] = set()
    # Axes of the scopes around and including each sweep's own loop, outermost first.
    scopes: dict[int, list[frozenset[str]]] = {}
    for sweep in reversed(sweeps):
        # Inside another sweep every stage must vary with what that sweeps over: a stage that did
        # not would be repeated, and one kept whole beside it serves all of the other's tiles.
        own = bases[id(sweep)]
        inner_in = [r for r in readers[id(sweep)] if _is_inner(own, scopes[id(r)])]
        outer = len(inner_in) < len(readers[id(sweep)]) or not readers[id(sweep)]
        if outer or any(_repeats(own, scopes[id(r)]) for r in inner_in):
            tops.add(id(sweep))
            scopes[id(sweep)] = [bases[id(sweep)], frozenset(sweep.axes)]
        else:
            scopes[id(sweep)] = [*scopes[id(inner_in[0])], frozenset(sweep.axes)]
    for number in range(len(uses.program.results)):
        _require_tops_for(uses, number, tops, bases)
    return tops


def _is_inner(own: frozenset[str], scopes: list[frozenset[str]]) -> bool:
    return any(own & axes for axes in scopes[1:])


def _repeats(own: frozenset[str], scopes: list[frozenset[str]]) -> bool:
    """Say whether evaluating a value inside `scopes` repeats it for axes that it does not have."""
    deepest = max(i for i, axes in enumerate(scopes) if i and own & axes)
    return bool(frozenset[str]().union(*scopes[: deepest + 1]) - own)


def _require_tops_for(
    uses: Uses, number: int, tops: set[int], bases: Mapping[int, frozenset[str]]
) -> None:
    axes = frozenset(uses.program.results[number].axes)
    read = uses.read_by_result(number)
    hosts = [s for s in read if id(s) in tops and bases[id(s)] <= axes]
    for sweep in read:
        own = uses.all_axes(sweep)
        varies_in_map = bool(hosts) and bool(own & (axes - bases[id(hosts[-1])]))
        if not (varies_in_map and axes <= own):
            tops.add(id(sweep))


def _group(
    uses: Uses, tops: list[Sweep], bases: Mapping[int, frozenset[str]], alone: set[int]
) -> list[tuple[frozenset[str], list[Sweep]]]:
    """Put sweeps over the same base axes into one nest where dependence allows it.

    The sweeps `alone` (by id) have nests of their own.
    """
    groups: list[tuple[frozenset[str], list[Sweep]]] = []
    where: dict[int, int] = {}
    for sweep in tops:
        base = bases[id(sweep)]
        last = max((where[id(r)] for r in _all_read(uses, sweep) if id(r) in where), default=-1)
        fits = [i for i, (b, _) in enumerate(groups) if b == base and i >= last and base]
        if last >= 0 and groups[last][0] == base:
            fits = [last]
        fits = [i for i in fits if not alone & {id(sweep), *map(id, groups[i][1])}]
        if fits:
            groups[fits[0]][1].append(sweep)
            where[id(sweep)] = fits[0]
        else:
            where[id(sweep)] = len(groups)
            groups.append((base, [sweep]))
    return _narrow_first(uses, groups, where)


def _narrow_first(
    uses: Uses, groups: list[tuple[frozenset[str], list[Sweep]]], where: Mapping[int, int]
) -> list[tuple[frozenset[str], list[Sweep]]]:
    """Order groups by what they read, and of those that could be next, take fewer axes first.

    Then a result that reads several is stored by the one with most axes, and what it takes from
    the others is small.
    """
    needed = [
        {where[id(r)] for s in sweeps for r in _all_read(uses, s) if id(r) in where} - {number}
        for number, (_, sweeps) in enumerate(groups)
    ]
    left, order = list(range(len(groups))), list[int]()
    while left:
        ready = [number for number in left if needed[number] <= set(order)]
        chosen = min(ready or left, key=lambda number: (len(groups[number][0]), number))
        left.remove(chosen)
        order.append(chosen)
    return [groups[number] for number in order]


def _all_read(uses: Uses, sweep: Sweep) -> list[Sweep]:
    """Return the sweeps that `sweep` reads, directly or through sweeps inner to it."""
    found: dict[int, Sweep] = {}
    todo = [sweep]
    while todo:
        for read in uses.read_by(todo.pop()):
            if id(read) not in found:
                found[id(read)] = read
                todo.append(read)
    return list(found.values())


def _place_results(
    uses: Uses, groups: list[tuple[frozenset[str], list[Sweep]]], inner: tuple[Sweep, ...]
) -> tuple[Nest, ...]:
    where = {id(s): i for i, (_, sweeps) in enumerate(groups) for s in sweeps}
    placed: dict[int, list[int]] = {}
    maps: list[int] = []
    for number, result in enumerate(uses.program.results):
        axes = frozenset(result.axes)
        read = [s for r in uses.read_by_result(number) for s in (r, *_all_read(uses, r))]
        last = max((where[id(s)] for s in read if id(s) in where), default=-1)
        if not read:
            last = _beside(axes, groups)
        if last >= 0 and groups[last][0] <= axes and (groups[last][0] or not axes):
            placed.setdefault(last, []).append(number)
        else:
            maps.append(number)
    exports = _exports(uses, groups, where, placed, maps)
    nests = [
        Nest(uses.program.ordered(base), tuple(sweeps), inner, tuple(placed.get(i, ())), exports[i])
        for i, (base, sweeps) in enumerate(groups)
    ]
    alike: dict[frozenset[str], list[int]] = {}
    for number in maps:
        alike.setdefault(frozenset(uses.program.results[number].axes), []).append(number)
    nests += [
        Nest(uses.program.ordered(axes), (), inner, tuple(numbers), ())
        for axes, numbers in alike.items()
    ]
    return tuple(nests)


def _beside(axes: frozenset[str], groups: list[tuple[frozenset[str], list[Sweep]]]) -> int:
    """Return the last group that passes over just these axes, -1 if there is none.

    A result that reads no stage is stored there, where the elements that it reads are at hand.
    """
    return max(
        (
            number
            for number, (base, sweeps) in enumerate(groups)
            if base and any(base.union(sweep.axes) == axes for sweep in sweeps)
        ),
        default=-1,
    )


def detached(program: Program, nest: Nest, numbers: frozenset[int]) -> tuple[Nest, ...]:
    """Return a nest without some of its results, and a nest without sweeps for each of those.

    What the results read of the nest goes through memory.
    """
    uses = Uses(program, (*nest.sweeps, *nest.inner))
    own = {stage for sweep in nest.sweeps for stage in sweep.stages}
    exported = set(nest.exports)
    todo = [stage for n in numbers for stage in uses.stages(program.results[n].value)]
    seen: set[str] = set()
    while todo:
        stage = todo.pop()
        if stage in own:
            exported.add(stage)
        elif stage not in seen:
            seen.add(stage)
            for expr in step_expressions(uses.sweep_of[stage]):
                todo += uses.stages(expr)
    names = [name for d in program.definitions for name in d.names if name in exported]
    rest = tuple(n for n in nest.results if n not in numbers)
    maps = [
        Nest(program.ordered(frozenset(program.results[n].axes)), (), nest.inner, (n,), ())
        for n in sorted(numbers)
    ]
    return (replace(nest, results=rest, exports=tuple(names)), *maps)


def _exports(
    uses: Uses,
    groups: list[tuple[frozenset[str], list[Sweep]]],
    where: Mapping[int, int],
    placed: Mapping[int, list[int]],
    maps: list[int],
) -> list[tuple[str, ...]]:
    """Return, for each group, the stages that other groups or detached maps read."""
    exported: list[set[str]] = [set() for _ in groups]

    def read_from(reader: int, stages: Iterable[str]) -> None:
        todo, seen = list(stages), set[str]()
        while todo:
            stage = todo.pop()
            if stage in seen:
                continue
            seen.add(stage)
            sweep = uses.sweep_of[stage]
            home = where.get(id(sweep))
            if home is None:
                for expr in step_expressions(sweep):
                    todo.extend(uses.stages(expr) - set(sweep.stages))
            elif home != reader:
                exported[home].add(stage)

    for i, (_, sweeps) in enumerate(groups):
        for sweep in sweeps:
            for expr in step_expressions(sweep):
                read_from(i, uses.stages(expr))
        for number in placed.get(i, ()):
            read_from(i, uses.stages(uses.program.results[number].value))
    for number in maps:
        read_from(-1, uses.stages(uses.program.results[number].value))
    order = {name: i for i, d in enumerate(uses.program.definitions) for name in d.names}
    return [tuple(sorted(stages, key=order.__getitem__)) for stages in exported]
