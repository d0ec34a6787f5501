"""What statements of a kernel's body do: the lists they make, the names they change."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.ir.loops import Branch, Commit, Contract, Fold, Loop, Statement
from redlang.schedule import tidy


def list_slots(body: Sequence[Statement]) -> dict[str, int]:
    """Return the axes that count the slots of top-k lists, and how many each has."""
    slots: dict[str, int] = {}
    for statement in body:
        match statement:
            case Fold(op="topk", k=int(k), types=types, values=values, over=over):
                inputs = {axis for value in values for axis in value.type.axes} | {*over}
                if statement.condition is not None:
                    inputs |= set(statement.condition.type.axes)
                slots |= {axis: k for axis in types[0].axes if axis not in inputs}
            case Loop(body=inner):
                slots |= list_slots(inner)
            case Branch(then=then, otherwise=otherwise):
                slots |= list_slots((*then, *otherwise))
            case _:
                pass
    return slots


def changing_names(body: Sequence[Statement]) -> frozenset[str]:
    """Return the names that are given more than one value."""
    seen: dict[str, int] = {}
    changing: set[str] = set()

    def visit(statements: Sequence[Statement]) -> None:
        for statement in statements:
            match statement:
                case Loop(body=inner):
                    visit(inner)
                case Branch(then=then, otherwise=otherwise):
                    visit((*then, *otherwise))
                case Commit(pairs=pairs):
                    changing.update(state for state, _ in pairs)
                case Contract(name=name, accumulate=True):
                    changing.add(name)
                case _:
                    for name in tidy.writes(statement):
                        seen[name] = seen.get(name, 0) + 1

    visit(body)
    return frozenset(changing | {name for name, times in seen.items() if times > 1})


def is_plain(statement: Statement) -> bool:
    """Tell whether a statement is a fold that others can be done beside."""
    plain = ("sum", "max", "min", "count", "any", "all")
    return isinstance(statement, Fold) and statement.op in plain and statement.monoid is None
