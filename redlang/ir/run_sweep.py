"""Run incremental forms with NumPy: update tile by tile, merge segments, finish.

This tests the algebra against the reference interpreter without any generated code. Tile size and
segments are the caller's, since no choice of them may change a result beyond rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from redlang.ir import walk
from redlang.ir.evaluate import Scope, evaluate, evaluate_full
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, Step, Sweep
from redlang.ir.interpret import Number, bind, results
from redlang.ir.numerics import Array, Precision
from redlang.ir.program import Expr, Program, Reduce, Ref
from redlang.ir.reduce import SLOT, Reduction, combine, partial, reduce
from redlang.ir.tiles import Tile, Window, renamed

States = Mapping[str, Tile]


def interpret_sweeps(
    program: Program,
    sweeps: Sequence[Sweep],
    arrays: Mapping[str, Array | Number],
    *,
    precision: Precision = "double",
    tile: int = 7,
    segments: int = 1,
    store: bool = True,
) -> tuple[Array, ...]:
    """Return the results of a normalised program whose reductions run in `sweeps`.

    Args:
        program: What the sweeps were derived from.
        sweeps: In an order in which each reads only what earlier ones finish. A reduction that is
            a stage of none runs on its own when its turn comes.
        arrays: A value for each parameter, by name.
        precision: In which types floats are computed.
        tile: Elements of the swept axes in one update.
        segments: How many parts of the swept axes have states of their own, to be merged.
        store: Whether results are rounded to their element types.
    """
    scope = bind(program, arrays, precision)
    by_stage = {stage: sweep for sweep in sweeps for stage in sweep.stages}
    pointwise = {
        d.names[0]: d.value for d in program.definitions if not isinstance(d.value, Reduce)
    }
    scope = scope.with_pointwise(pointwise)
    pending = list(sweeps)
    for definition in program.definitions:
        value = definition.value
        if not isinstance(value, Reduce) or definition.names[0] in scope.values:
            continue
        if definition.names[0] not in by_stage:
            parts = reduce(value, scope)
            scope = scope.with_values(dict(zip(definition.names, parts, strict=True)))
            continue
        while definition.names[0] not in scope.values:
            finished = run_sweep(pending.pop(0), scope, tile=tile, segments=segments)
            scope = scope.with_values(finished)
    return results(program, scope, store=store)


def run_sweep(sweep: Sweep, scope: Scope, *, tile: int, segments: int = 1) -> States:
    """Return the finished stages of `sweep`, by name.

    Args:
        sweep: What to run.
        scope: Arrays, scalars and the definitions that the sweep reads.
        tile: Elements of the swept axes in one update.
        segments: Parts of the swept axes with states of their own; with more segments than tiles
            some stay empty.
    """
    windows = list(tiles(sweep.axes, scope, tile))
    bounds = [len(windows) * i // segments for i in range(segments + 1)]
    states: States | None = None
    for first, last in itertools.pairwise(bounds):
        part = initial_states(sweep, scope)
        for window in windows[first:last]:
            part = update(sweep, part, scope.with_windows(window))
        states = part if states is None else merge(sweep, states, part, scope)
    assert states is not None, "a sweep has at least one segment"
    return finish(sweep, states, scope)


def tiles(axes: Sequence[str], scope: Scope, tile: int) -> Iterator[dict[str, Window]]:
    """Yield the current ranges of the swept axes, row-major, about `tile` elements each."""
    axis, *inner = axes
    rest = math.prod(scope.extents[name] for name in inner)
    if inner and rest > tile:
        for i in range(scope.extents[axis]):
            for window in tiles(inner, scope, tile):
                yield {axis: (i, i + 1), **window}
        return
    extent, step = scope.extents[axis], max(1, tile // max(rest, 1))
    for start in range(0, extent, step):
        yield {axis: (start, min(start + step, extent))}


def initial_states(sweep: Sweep, scope: Scope) -> States:
    """Return the states before any element."""
    return {state.name: evaluate(state.initial, scope) for state in sweep.states}


def update(sweep: Sweep, states: States, scope: Scope) -> States:
    """Return the states after one tile of elements, the current windows of `scope`."""
    return _commit(sweep.update, sweep.commits, sweep, states, states, scope)


def merge(sweep: Sweep, left: States, right: States, scope: Scope) -> States:
    """Join the states of two parts of the axes; `left` has the earlier elements."""
    both = {f"a.{name}": value for name, value in left.items()}
    both |= {f"b.{name}": value for name, value in right.items()}
    return _commit(sweep.merge, sweep.merge_commits, sweep, left, both, scope)


def finish(sweep: Sweep, states: States, scope: Scope) -> States:
    """Return the values of the sweep's stages."""
    values = dict(states)
    for step in sweep.finish:
        lists = {
            name: renamed(values[name], SLOT, axis, scope.order)
            for name, axis in _lists(sweep, step.value).items()
        }
        values[step.name] = evaluate_full(step.value, scope.with_values({**values, **lists}))
    return {stage: values[stage] for stage in sweep.stages}


def _commit(
    steps: Sequence[Step],
    commits: Sequence[Commit],
    sweep: Sweep,
    states: States,
    readable: States,
    scope: Scope,
) -> States:
    values = dict(readable)
    for step in steps:
        values |= _run(step, sweep, scope.with_values(values))
    return {**states, **{commit.state: values[commit.value] for commit in commits}}


def _run(step: Step, sweep: Sweep, scope: Scope) -> dict[str, Tile]:
    match step:
        case Each(name, value) | Let(name, value):
            return {name: evaluate(value, scope)}
        case Partial(names, op, values, condition, _, k, monoid):
            reduction = Reduction(op, sweep.axes, values, condition, k, monoid=monoid)
            return dict(zip(names, partial(reduction, scope), strict=True))
        case Combine(names, op, left, right, _, k, monoid):
            sides = [[scope.values[name] for name in side] for side in (left, right)]
            parts = combine(op, sides[0], sides[1], scope, k=k, monoid=monoid)
            return dict(zip(names, parts, strict=True))


def _lists(sweep: Sweep, value: Expr) -> dict[str, str]:
    """Return the axis of the program that counts the slots, for each top-k state in `value`."""
    states = {state.name: state.type for state in sweep.states if state.k is not None}
    return {
        node.name: next(axis for axis in node.type.axes if axis not in states[node.name].axes)
        for node in walk.nodes(value)
        if isinstance(node, Ref) and node.name in states
    }
