"""Split a reduction whose axes go beyond those of the result that it reads.

    total = sum[n, c](w * (x - com) ** 2)   with com reduced over n, c free
      -->
    inner = sum[n](w * (x - com) ** 2);  total = sum[c](inner)

Allowed for every reduction that may be taken in two steps: sum, prod, max, min, any, all, count.
The inner one has the axes of what it reads and can be carried with it; the outer one is an ordinary
reduction over what remains.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.algebra.cascade import Dependences
from redlang.algebra.operators import OUTER, SPLITTABLE
from redlang.ir.build import Builder
from redlang.ir.program import Definition, Program, Reduce, Ref


def split(program: Program) -> Program:
    """Return the program with such reductions split; the program itself if there are none."""
    dependences = Dependences(program)
    definitions: list[Definition] = []
    changed = False
    taken = {name for definition in program.definitions for name in definition.names}
    for definition in program.definitions:
        axes = _inner_axes(definition, dependences)
        if axes is None:
            definitions.append(definition)
            continue
        assert isinstance(definition.value, Reduce)
        inner, outer = _halves(definition, definition.value, axes, taken, dependences.build)
        taken.update(inner.names)
        definitions.extend((inner, outer))
        changed = True
    return replace(program, definitions=tuple(definitions)) if changed else program


def _inner_axes(definition: Definition, dependences: Dependences) -> frozenset[str] | None:
    """Return the axes of the results read that lie strictly inside this reduction's axes."""
    reduce = definition.value
    if not isinstance(reduce, Reduce) or reduce.op not in SPLITTABLE or len(reduce.axes) < 2:
        return None
    own = frozenset(reduce.axes)
    candidates: set[frozenset[str]] = set()
    for read in dependences.reads(definition.names[0]):
        axes = frozenset(dependences.reduce(read).axes)
        kept = own & dependences.free(read)
        # The inner half must range over all that the result was reduced over, and leave free what
        # the result still varies with.
        if axes < own and kept <= own - axes:
            candidates.add(axes)
    return candidates.pop() if len(candidates) == 1 else None


def _halves(
    definition: Definition, reduce: Reduce, axes: frozenset[str], taken: set[str], build: Builder
) -> tuple[Definition, Definition]:
    (name,) = definition.names
    inner_name, number = f"{name}.inner", 1
    while inner_name in taken:
        number += 1
        inner_name = f"{name}.inner{number}"
    inner_axes = tuple(axis for axis in reduce.axes if axis in axes)
    outer_axes = tuple(axis for axis in reduce.axes if axis not in axes)
    inner = build.reduce(
        reduce.op, inner_axes, *reduce.operands, condition=reduce.condition, span=reduce.span
    )
    ref = Ref(inner_name, inner.types[0], reduce.span)
    # An operand that does not vary with an outer axis is repeated along it, as it was before.
    varying = [a for a in outer_axes if a in inner.types[0].axes]
    if len(varying) < len(outer_axes):
        raise AssertionError(f"{name} reduces {outer_axes}, which its operand lacks")
    outer_op = OUTER.get(reduce.op, reduce.op)
    outer = build.reduce(outer_op, outer_axes, ref, span=reduce.span)
    outer = replace(outer, types=reduce.types)
    return (
        Definition((inner_name,), inner, definition.span),
        Definition((name,), outer, definition.span),
    )
