"""Two axes that gather one operand's rows become one, as pages of a cache and places in them.

    sum[j, x](p * v[t[j], x, e])   -->   sum[j_x](p * v[t[j_x // size(x)], j_x % size(x), e])

A product contracts one axis. Allowed where all reductions have both axes or neither.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, Expr, Index, Load, Program, Reduce, Size
from redlang.ir.types import Type
from redlang.schedule.merged import with_joint, with_types
from redlang.schedule.operands import Operands


def with_joined_places(program: Program) -> Program:
    """Return a normalised program whose products over gathered rows contract one axis."""
    operands = Operands(program)
    for name, product in operands.products.items():
        value = operands.definitions[name].value
        assert isinstance(value, Reduce)
        sides = (product.left, product.right)
        if len(value.axes) == 2 and any(_gathers(side, value.axes) for side in sides):
            outer, inner = value.axes
            if _go_together(program, outer, inner):
                return _join(program, outer, inner)
    return program


def _gathers(expr: Expr, over: tuple[str, ...]) -> bool:
    """Say whether an operand's rows, along none of some axes, lie where an array says."""
    for load in walk.nodes(expr):
        if isinstance(load, Load) and {*over} <= {*load.type.axes}:
            *places, last = load.subscripts
            told = any(isinstance(n, Load) for place in places for n in walk.nodes(place))
            if told and not {*over} & {*last.type.axes}:
                return True
    return False


def _go_together(program: Program, outer: str, inner: str) -> bool:
    pair = {outer, inner}
    sets = [{*result.axes} for result in program.results]
    for definition in program.definitions:
        value = definition.value
        if isinstance(value, Reduce):
            if pair & {*value.axes} and value.op not in ("sum", "max", "min", "count"):
                return False
            sets += [{*value.axes}, *({*type_.axes} for type_ in value.types)]
    return all(len(pair & axes) != 1 for axes in sets)


def _join(program: Program, outer: str, inner: str) -> Program:
    taken = {axis.name for axis in program.axes} | {p.name for p in program.params}
    taken |= {name for definition in program.definitions for name in definition.names}
    name = f"{outer}_{inner}"
    while name in taken:
        name += "_"
    axes = with_joint(program, outer, inner, name)
    builder = Builder(tuple(axis.name for axis in axes))
    index, size = builder.index(name), builder.size(inner)
    number, rest = builder.apply("floordiv", index, size), builder.apply("mod", index, size)
    again = [builder.mul(number, size), builder.mul(size, number)]
    wholes = [builder.add(*pair) for one in again for pair in ((one, rest), (rest, one))]

    def one(own: tuple[str, ...]) -> tuple[str, ...]:
        return builder.union([[name if axis in (outer, inner) else axis for axis in own]])

    def typed(type_: Type) -> Type:
        return replace(type_, axes=one(type_.axes))

    def rule(node: Expr) -> Expr:
        if isinstance(node, Index) and node.axis in (outer, inner):
            return number if node.axis == outer else rest
        if isinstance(node, Size) or not {outer, inner} & {*node.type.axes}:
            return index if node in wholes else node
        node = replace(node, type=typed(node.type))
        return index if isinstance(node, Apply) and node in wholes else node

    found = walk.map_program(program, lambda expr: walk.rewrite(expr, rule))

    def over(own: tuple[str, ...]) -> tuple[str, ...]:
        return (name,) if outer in own else own

    definitions = tuple(with_types(d, over, typed) for d in found.definitions)
    return replace(found, axes=axes, definitions=definitions)
