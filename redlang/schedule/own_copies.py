"""A small sum that sums of other axes share becomes one for each of them.

    z = sum[n](w);  u = sum[n](w * x) / z, of i;  v = sum[n](w * y) / z, of j

Together they would be one sweep, whose units share neither i nor j; apart they are two, each of
which sums w as well.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from redlang.ir import walk
from redlang.ir.program import Definition, Program, Reduce


def with_own_copies(program: Program) -> Program:
    """Return a normalised program with copies of what definitions of other axes read."""
    copies: dict[str, list[Definition]] = {}
    names: dict[int, dict[str, str]] = {}
    for definition in program.definitions:
        value, (name, *others) = definition.value, definition.names
        if not isinstance(value, Reduce) or others:
            # Two results are a list's, which has an axis of its own.
            continue
        if any(map(walk.refs, walk.expressions(value))):
            continue
        own = {*walk.value_types(value)[0].axes, *value.axes}
        first: frozenset[str] | None = None
        for number, reader in enumerate(program.definitions):
            if not any(name in walk.refs(e) for e in walk.expressions(reader.value)):
                continue
            axes = frozenset(a for type_ in walk.value_types(reader.value) for a in type_.axes)
            axes -= own
            first = axes if first is None else first
            if axes <= first or first <= axes:
                continue
            copy = f"{name}.{'.'.join(sorted(axes))}"
            names.setdefault(number, {})[name] = copy
            made = copies.setdefault(name, [])
            if copy not in (d.names[0] for d in made):
                made.append(replace(definition, names=(copy,)))
    if not copies:
        return program
    definitions: list[Definition] = []
    for number, definition in enumerate(program.definitions):
        rule = partial(walk.rename, names=names.get(number, {}))
        renamed = replace(definition, value=walk.map_value(definition.value, rule))
        definitions += [renamed, *copies.get(definition.names[0], ())]
    return replace(program, definitions=tuple(definitions))
