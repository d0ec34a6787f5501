"""The plans of sweeps that put each element in a class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redlang.schedule.classes import (
    CHAIN,
    FEWEST_SMS,
    ROOM,
    ClassPlan,
    axes_beside,
    class_axis,
    class_parts,
    longest_chain,
    state_bytes,
)
from redlang.schedule.parts import Candidate, Part, Spreader
from redlang.schedule.plan import NestPlan
from redlang.schedule.threads import Spread, ThreadPlan

CROWD = 1024
"""Threads of an SM, at most: their states take more room than others' registers."""


def by_class(spreader: Spreader) -> Iterator[Candidate]:
    """Yield plans in which each element moves the state of its own class only."""
    facts, vector = spreader.facts, spreader.vector
    axis = class_axis(facts)
    if axis is None or vector == axis:
        return
    swept = facts.nest.sweeps[0].axes
    column = [a for a in facts.nest.base if a == vector]
    # What only tests have, a thread has whole: the other side of a table of counts.
    beside = [Spread(a, facts.extent(a)) for a in axes_beside(facts, axis)]
    for lanes in (8, 32) if column else (1,):
        for threads in (64, 128, 256):
            for registers in (4, 8, 16):
                width = spreader.width
                shape = spreader.strips(swept, threads // lanes, registers, column, width)
                if shape is not None:
                    shape = [*beside, *shape, *(Spread(a, 1, lanes, width) for a in column)]
                    yield from _classed(spreader, axis, shape)


def _classed(spreader: Spreader, axis: str, shape: Sequence[Spread]) -> Iterator[Candidate]:
    facts, nest = spreader.facts, spreader.nest
    swept = nest.sweeps[0].axes
    tiles = {s.axis: s.extent for s in shape if s.axis in swept}
    segmented = max(swept, key=lambda a: (-(-facts.extent(a) // tiles[a]), a))
    threads = ThreadPlan(tuple(s for s in shape if s.extent > 1), strips=tuple(swept))
    # A group of threads moves whole rows; when all is done, each group joins some classes.
    groups = 1 << sum(len(threads.bits(a)) for a in swept)
    columns = [s for s in shape if s.axis not in swept]
    for wide in (False, True):
        each = state_bytes(nest, threads, wide=wide) * threads.threads
        most, extent = ROOM // each, facts.extent(axis)
        if most < extent:
            most = most // groups * groups
        if most == 0 or groups == 1:
            continue
        times = -(-extent // most)
        tile = extent if times == 1 else -(-extent // (times * groups)) * groups
        plan = NestPlan(
            "multi-segment",
            spreader.grid({axis: tile} | {s.axis: s.extent for s in columns}),
            tuple(tiles.items()),
            (),
            segmented,
            innermost=next((s.axis for s in columns if s.axis == spreader.vector), ""),
        )
        resident = max(1, min(ROOM // (tile * each), CROWD // threads.threads))
        made = replace(threads, min_blocks=resident)
        if wide or _adds_few(spreader, plan, made):
            part = Part(nest, plan, made, across=True, classes=ClassPlan(axis, wide))
            yield Candidate("by class", (part,))
            return


def _adds_few(spreader: Spreader, plan: NestPlan, threads: ThreadPlan) -> bool:
    """Say whether few enough elements are added to one state, on any device, to add in f32."""
    states = [state for sweep in spreader.nest.sweeps for state in sweep.states]
    extents = {a: spreader.facts.extent(a) for a in (*spreader.facts.swept, *spreader.nest.base)}
    parts = class_parts(plan, threads, extents, FEWEST_SMS)
    few = longest_chain(plan, threads, extents, parts) <= CHAIN
    return few or all(state.type.dtype.name != "f32" for state in states)
