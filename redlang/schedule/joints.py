"""Lower the joining of all segments of a sweep at once."""

from __future__ import annotations

from dataclasses import replace

from redlang.ir import incremental, loops, walk
from redlang.ir.build import Builder
from redlang.ir.program import Expr, Ref
from redlang.ir.types import Type


def joint_statements(
    sweep: incremental.Sweep, name: str, index: str, builder: Builder
) -> tuple[loops.Statement, ...]:
    """Return the statements that join segments, none where pairs have to be joined.

    Args:
        sweep: What was cut.
        name: What its workspaces are called after.
        index: The axis that numbers segments; it has its whole range here.
        builder: For the program's axes and this one.
    """
    if not sweep.joint:
        return ()
    values: dict[str, Expr] = {
        state.name: Ref(f"{name}.{state.name}", with_axis(state.type, index))
        for state in sweep.states
    }

    def of_parts(value: Expr) -> Expr:
        return walk.substitute(value, values, rebuild=builder.rebuild)

    found: list[loops.Statement] = []
    for step in sweep.joint:
        match step:
            case incremental.Partial():
                operands = tuple(map(of_parts, step.values))
                found.append(loops.Fold(step.names, step.op, (index,), operands, None, step.types))
            case incremental.Each() | incremental.Let():
                value = of_parts(step.value)
                type_ = replace(value.type, weak=False, absent=False)
                found.append(loops.Compute(step.name, value, type_))
                values[step.name] = Ref(step.name, type_)
    pairs = tuple((commit.state, commit.value) for commit in sweep.merge_commits)
    return (*found, loops.Commit(pairs))


def with_axis(type_: Type, index: str) -> Type:
    """Return the type of a value of every segment."""
    return replace(type_, axes=(index, *type_.axes))
