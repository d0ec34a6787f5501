"""The axis that counts the slots of top-k lists, in the types of a sweep's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from redlang.ir import incremental, walk
from redlang.ir.program import Ref
from redlang.ir.types import Type


def with_slots(sweep: incremental.Sweep) -> incremental.Sweep:
    """Return the sweep with the axis that counts the slots in the types of its top-k lists."""
    listed = {state.name: state for state in sweep.states if state.k is not None}
    axes = {
        node.name: next(a for a in node.type.axes if a not in listed[node.name].type.axes)
        for let in sweep.finish
        for node in walk.nodes(let.value)
        if isinstance(node, Ref) and node.name in listed
    }
    if not axes:
        return sweep
    # Value and index of a list are joined together, with the state on the left.
    joins = [s for s in sweep.update if isinstance(s, incremental.Combine) and s.op == "topk"]
    found = dict(axes)
    for join in joins:
        axis = next(axes[name] for name in join.left if name in axes)
        found |= dict.fromkeys((*join.left, *join.right, *join.names), axis)
        found |= {f"a.{name}": axis for name in join.left}
    return replace(
        sweep,
        states=tuple(_slotted_state(state, found) for state in sweep.states),
        update=tuple(_slotted(step, found) for step in sweep.update),
        merge=tuple(_slotted(step, found) for step in sweep.merge),
    )


def _slotted_state(state: incremental.State, axes: dict[str, str]) -> incremental.State:
    if state.name not in axes:
        return state
    return replace(state, type=_counting(state.type, axes[state.name]))


StepKind = TypeVar("StepKind", bound=incremental.Step)


def _slotted(step: StepKind, axes: dict[str, str]) -> StepKind:
    match step:
        case incremental.Partial() | incremental.Combine() if step.op == "topk":
            names = step.left if isinstance(step, incremental.Combine) else step.names
            axis = next(axes[name] for name in names if name in axes)
            return replace(step, types=tuple(_counting(type_, axis) for type_ in step.types))
        case _:
            return step


def _counting(type_: Type, axis: str) -> Type:
    return replace(type_, axes=(*(a for a in type_.axes if a != axis), axis))
