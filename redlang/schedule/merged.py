"""Axes that always come together become one: sums over one axis, and longer runs of elements.

    sum[g, c](x[m, g, c] * w[n, g, c])    -->    sum[g.c](x[m, g.c] * w[n, g.c])

Allowed where the two are neighbours in one dimension of every array that has either, where both
vary or neither does, and where no index of either is a value. A place along the new axis is then
one along the inner one, further on. The last axis of a dimension and the first of the next one are
such neighbours too, in a call whose arrays have no gaps between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.extents import whole_name
from redlang.ir.program import (
    ArrayParam,
    Axis,
    Definition,
    Dim,
    Expr,
    Index,
    Load,
    Program,
    Reduce,
    Result,
)
from redlang.ir.types import Type
from redlang.schedule.views import MERGED, view_of

COMMUTE = ("sum", "max", "min", "any", "all", "count")


def merged(program: Program) -> Program:
    """Return a normalised program with one axis for each two that always come together."""
    while True:
        pairs = (pair for p in _read(program) for dim in p.dims for pair in pairwise(dim.axes))
        pair = next((pair for pair in pairs if _are_one(program, *pair)), None)
        if pair is None:
            return program
        program = _merge(program, *pair, MERGED.join(pair))


def merged_across(program: Program) -> tuple[Program, tuple[tuple[str, str], ...]]:
    """Return a program with one axis for neighbours in different dimensions too.

    Beside it stand those neighbours, axes of `program`. It is right for arrays in which the first
    of each two steps over the whole extent of the second.
    """
    ends = {axis.name: (axis.name, axis.name) for axis in program.axes}
    found: list[tuple[str, str]] = []
    while True:
        pairs = (pair for array in _read(program) for pair in pairwise(array.axes))
        fitting = (p for p in pairs if _lengthens(program, *p) and _are_one(program, *p))
        pair = next(fitting, None)
        if pair is None:
            return program, tuple(found)
        outer, inner = pair
        found.append((ends[outer][1], ends[inner][0]))
        name = MERGED.join(pair)
        ends[name] = ends[outer][0], ends[inner][1]
        program = _merge(program, outer, inner, name)


def is_adjacent(
    outer: str, inner: str, strides: Mapping[str, Mapping[str, int]], extents: Mapping[str, int]
) -> bool:
    """Say whether two axes are one in all arrays that have them, by their strides in elements."""
    both = [own for own in strides.values() if outer in own and inner in own]
    return extents[outer] == 1 or all(own[outer] == extents[inner] * own[inner] for own in both)


def _lengthens(program: Program, outer: str, inner: str) -> bool:
    """Say whether one axis in place of two makes runs of adjacent elements longer, or sweeps."""
    stored = _stored(program)
    names = {axis.name for axis in program.axes}
    if any(len(d.axes) > 1 and whole_name(d) in names for array in stored for d in array.dims):
        return False  # A ragged dimension ends before its axes do.
    if all(array.axes[-1] == inner for array in stored if inner in array.axes):
        return True
    reduces = [d.value for d in program.definitions if isinstance(d.value, Reduce)]
    return any({outer, inner} <= {*reduce.axes} for reduce in reduces)


def _read(program: Program) -> list[ArrayParam]:
    """Return the arrays that a program reads."""
    names = frozenset[str]().union(*map(walk.arrays, _expressions(program)))
    return [p for p in program.params if isinstance(p, ArrayParam) and p.name in names]


def _stored(program: Program) -> list[ArrayParam | Result]:
    """Return the arrays that a program reads and those that it writes."""
    return [*_read(program), *program.results]


def _expressions(program: Program) -> Iterator[Expr]:
    for definition in program.definitions:
        yield from walk.expressions(definition.value)
    for result in program.results:
        yield result.value
        if result.condition is not None:
            yield result.condition


def _are_one(program: Program, outer: str, inner: str) -> bool:
    pair = {outer, inner}
    if whole_name(Dim((outer, inner))) in {axis.name for axis in program.axes}:
        return False
    reduces = [d.value for d in program.definitions if isinstance(d.value, Reduce)]
    sets = [type_.axes for reduce in reduces for type_ in reduce.types]
    if not all(_has_both(array.axes, outer, inner) for array in _stored(program)):
        return False
    for reduce in reduces:
        sets.append(reduce.axes)
        if pair & {*reduce.axes, reduce.new_axis} and reduce.op not in COMMUTE:
            return False
    for expr in _expressions(program):
        plain: set[int] = set()
        for node in walk.nodes(expr):
            if isinstance(node, Load) and not any(node.guarded):
                # What an array's own axes are read at.
                own = program.array(node.array).axes
                plain |= {
                    id(part)
                    for axis, part in zip(own, node.subscripts, strict=True)
                    if isinstance(part, Index) and part.axis == axis
                }
        for node in walk.nodes(expr):
            if id(node) in plain:
                continue
            if isinstance(node, Index) and node.axis in pair:
                return False
            sets.append(node.type.axes)
    return all(len(pair & set(axes)) != 1 for axes in sets)


def _has_both(axes: tuple[str, ...], outer: str, inner: str) -> bool:
    return not {outer, inner} & {*axes} or (outer, inner) in pairwise(axes)


def with_joint(program: Program, outer: str, inner: str, name: str) -> tuple[Axis, ...]:
    """Return a program's axes and, after both of two, one that has their places, row-major."""
    sizes = Builder.of(program)
    whole = Axis(name, sizes.mul(sizes.size(outer), sizes.size(inner)))
    names = [axis.name for axis in program.axes]
    place = max(names.index(outer), names.index(inner)) + 1
    return (*program.axes[:place], whole, *program.axes[place:])


def with_types(
    definition: Definition,
    over: Callable[[tuple[str, ...]], tuple[str, ...]],
    typed: Callable[[Type], Type],
) -> Definition:
    """Return a definition whose reduction, if it is one, goes over other axes and has others."""
    value = definition.value
    if not isinstance(value, Reduce):
        return definition
    types = tuple(map(typed, value.types))
    return replace(definition, value=replace(value, axes=over(value.axes), types=types))


def _merge(program: Program, outer: str, inner: str, name: str) -> Program:
    axes = with_joint(program, outer, inner, name)
    builder = Builder(tuple(axis.name for axis in axes))

    def one(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name if axis == inner else axis for axis in names if axis != outer)

    def typed(type_: Type) -> Type:
        return replace(type_, axes=builder.union([one(type_.axes)]))

    def dims(of: tuple[Dim, ...]) -> tuple[Dim, ...]:
        found: list[Dim] = []
        for dim in of:
            before = found.pop().axes if inner in dim.axes and outer not in dim.axes else ()
            found.append(Dim(before + dim.axes))
        return tuple(Dim(one(dim.axes)) for dim in found)

    views = {p.name: view_of(p.name, name) for p in _read(program) if inner in p.axes}

    def rule(node: Expr) -> Expr:
        if not {outer, inner} & {*node.type.axes}:
            return node
        if isinstance(node, Index):
            return builder.index(name, span=node.span)
        if isinstance(node, Load):
            kept = [i for i, a in enumerate(program.array(node.array).axes) if a != outer]
            node = replace(
                node,
                array=views.get(node.array, node.array),
                subscripts=tuple(node.subscripts[i] for i in kept),
                guarded=tuple(node.guarded[i] for i in kept),
            )
        return replace(node, type=typed(node.type))

    found = walk.map_program(program, lambda expr: walk.rewrite(expr, rule))
    definitions = tuple(with_types(d, one, typed) for d in found.definitions)
    params = found.params + tuple(
        replace(p, name=views[p.name], dims=dims(p.dims))
        for p in found.params
        if isinstance(p, ArrayParam) and p.name in views
    )
    results = tuple(replace(result, dims=dims(result.dims)) for result in found.results)
    return replace(found, params=params, axes=axes, definitions=definitions, results=results)
