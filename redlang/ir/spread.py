"""Reductions whose results are larger than anything they read, as the scores of an attention."""

from __future__ import annotations

from collections.abc import Mapping

from redlang.ir import walk
from redlang.ir.program import Definition, Load, Reduce, Ref


def spreads(definitions: Mapping[str, Definition], stage: str) -> bool:
    """Say whether a stage has more axes than each array and each stage that it reads.

    Its place in memory is then larger than theirs: it is worth being computed where it is read.

    Args:
        definitions: Those of a program, by each of their names.
        stage: Name of a reduction.
    """
    value = definitions[stage].value
    assert isinstance(value, Reduce)
    own = frozenset(axis for type_ in value.types for axis in type_.axes) - {value.new_axis}
    todo, seen = list(walk.expressions(value)), set[str]()
    while todo:
        for node in walk.nodes(todo.pop()):
            read = definitions[node.name].value if isinstance(node, Ref) else None
            if isinstance(node, Ref) and read is not None and not isinstance(read, Reduce):
                if node.name not in seen:
                    seen.add(node.name)
                    todo.append(read)
            elif (isinstance(node, Load) or read is not None) and own <= set(node.type.axes):
                return False
    return True
