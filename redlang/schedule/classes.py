"""Sweeps that put each element in a class: a state for every class, of which an element moves one.

    for every c:  sum[n](where(label[n] == c, x[n, d]))
      -->
    for every n:  state[label[n], d] += x[n, d]

Each thread has states of its own for all classes of a unit, in shared memory, so that no two write
to one place and the order of a thread's elements is the order of its additions. What is read is
read once, and not once a class. The states of threads, then of blocks, are joined in order.

Allowed where a sweep only reduces, by sums, counts and extremes, and every condition has the class
as one of its tests: `label == c`, with a label that does not vary with c, in an `and` of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from redlang.ir.incremental import Combine, Each, Partial, Sweep
from redlang.ir.program import Apply, Cast, Expr, Index, Program, Reduce, Ref
from redlang.ir.types import F32, F64, I64
from redlang.schedule.facts import Facts
from redlang.schedule.nests import Nest
from redlang.schedule.plan import NestPlan
from redlang.schedule.threads import ThreadPlan

REDUCTIONS = ("sum", "count", "max", "min")
FEWEST, MOST = 4, 1 << 24
"""Classes from which on states in shared memory are worth their way; up to MOST each is an f32."""
ROOM = 200 * 1024
"""Bytes of shared memory that the states of a block may take; devices say whether they have it."""
PARTS = 256
"""Segments that the merge of states joins at once, at most."""
CHAIN = 256
"""Additions of f32 that may follow each other in one state; more are added up in f64."""
FEWEST_SMS = 64
"""SMs that a device is taken to have where that is asked."""


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """How elements go to their classes.

    Attributes:
        axis: The axis of the classes.
        wide: Whether sums of f32 are added up in f64.
    """

    axis: str
    wide: bool = False


Resolve = Callable[[str], Expr | None]
"""The expression behind the name of a pointwise definition."""


def class_test(condition: Expr, axis: str, resolve: Resolve) -> tuple[Expr, list[Expr]] | None:
    """Return the class of an element along an axis and the other tests of a condition."""
    tests = list(_tests(condition, resolve))
    for place, test in enumerate(tests):
        if isinstance(test, Apply) and test.op == "eq":
            for side, other in (test.arguments, test.arguments[::-1]):
                rest = tests[:place] + tests[place + 1 :]
                lacking = all(axis not in expr.type.axes for expr in (side, *rest))
                if _is_index(other, axis) and lacking and side.type.dtype in (I64, F32, F64):
                    return side, rest
    return None


def _tests(condition: Expr, resolve: Resolve) -> list[Expr]:
    if isinstance(condition, Ref):
        behind = resolve(condition.name)
        return [condition] if behind is None else _tests(behind, resolve)
    if isinstance(condition, Apply) and condition.op == "and":
        return [test for part in condition.arguments for test in _tests(part, resolve)]
    return [condition]


def _is_index(expr: Expr, axis: str) -> bool:
    if isinstance(expr, Cast) and not expr.explicit:
        expr = expr.operand
    return isinstance(expr, Index) and expr.axis == axis


def has_classes(program: Program) -> bool:
    """Say whether a reduction of a program puts elements in classes."""
    values = {name: d.value for d in program.definitions for name in d.names}

    def behind(name: str) -> Expr | None:
        value = values.get(name)
        return None if isinstance(value, Reduce) else value

    return any(
        class_test(value.condition, axis, behind) is not None
        for value in values.values()
        if isinstance(value, Reduce) and value.condition is not None
        for axis in value.types[0].axes
    )


def class_axis(facts: Facts) -> str | None:
    """Return an axis along which a nest's only sweep puts elements in classes, if it has one."""
    if len(facts.nest.sweeps) != 1 or facts.used_inner or facts.slots or facts.mapped:
        return None
    (sweep,) = facts.nest.sweeps
    if facts.extra or any(facts.uses.read_by(sweep)):
        return None
    for axis in facts.nest.base:
        if FEWEST <= facts.extent(axis) <= MOST:
            classes = _classes(sweep, axis, facts.pointwise)
            # A thread has one class for all that it holds of an element.
            held = {facts.vector, *axes_beside(facts, axis)} - {*sweep.axes}
            if classes and all(held.isdisjoint(each.type.axes) for each in classes):
                return axis
    return None


def axes_beside(facts: Facts, axis: str) -> list[str]:
    """Return what a thread has whole beside classes: short axes that nothing read has."""
    reads = [access for access in facts.accesses if not access.written]
    return [
        a
        for a in facts.nest.base
        if a not in (axis, facts.vector) and facts.fits(a) and all(a not in x.axes for x in reads)
    ]


def _classes(sweep: Sweep, axis: str, resolve: Resolve) -> list[Expr]:
    """Return the class that each reduction of a sweep asks about; none if one has none."""
    named = {step.name: step.value for step in sweep.update if isinstance(step, Each)}

    def behind(name: str) -> Expr | None:
        return named.get(name) or resolve(name)

    found = []
    for step in sweep.update:
        if isinstance(step, Each | Combine):
            continue
        if not isinstance(step, Partial) or step.op not in REDUCTIONS or step.condition is None:
            return []
        test = class_test(step.condition, axis, behind)
        if test is None or any(axis in value.type.axes for value in step.values):
            return []
        found.append(test[0])
    return found


def state_bytes(nest: Nest, threads: ThreadPlan, *, wide: bool) -> int:
    """Return the bytes of a thread's states of one class."""
    (sweep,) = nest.sweeps
    total = 0
    for step in sweep.update:
        if isinstance(step, Partial):
            (type_,) = step.types
            count = prod(threads.spread(axis).count for axis in type_.axes)
            narrow = step.op == "count" or type_.dtype.name == "f32"
            total += count * (4 if narrow and not (wide and step.op == "sum") else 8)
    return total


def class_bytes(nest: Nest, plan: NestPlan, threads: ThreadPlan, classes: ClassPlan) -> int:
    """Return the shared memory of a block: the states of all its threads and classes."""
    tile = next(grid.tile for grid in plan.grid if grid.axis == classes.axis)
    return tile * threads.threads * state_bytes(nest, threads, wide=classes.wide)


def longest_chain(
    plan: NestPlan, threads: ThreadPlan, extents: Mapping[str, int], parts: int
) -> int:
    """Return how many elements a thread adds to one state, at most."""
    swept = [axis for axis, _ in plan.tiles]
    tiles = prod(-(-extents[axis] // plan.tile(axis)) for axis in swept)
    return -(-tiles // parts) * prod(threads.spread(axis).count for axis in swept)


def class_units(plan: NestPlan, extents: Mapping[str, int]) -> int:
    """Return how many units there are, each with some of the classes."""
    return prod(-(-extents[grid.axis] // grid.tile) for grid in plan.grid)


def class_parts(plan: NestPlan, threads: ThreadPlan, extents: Mapping[str, int], sms: int) -> int:
    """Return how many blocks share the elements of a unit."""
    assert plan.segmented is not None
    units = class_units(plan, extents)
    tiles = -(-extents[plan.segmented] // plan.tile(plan.segmented))
    return max(1, min(tiles, PARTS, sms * threads.min_blocks // max(1, units)))
