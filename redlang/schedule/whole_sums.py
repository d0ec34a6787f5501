"""Sums of scaled partial sums become one sum over all axes, which may be a matrix product.

    sum[g](sum[c](x * w) * s)   -->   sum[g, c](x * w * s)

A matrix unit has no place for what a part of a sum is multiplied by.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.normalise import needed
from redlang.ir.program import Apply, Expr, Load, Program, Reduce, Ref


def with_whole_sums(program: Program) -> Program:
    """Return a normalised program whose partial sums are parts of the sums that read them."""
    finder = _Finder(program)
    definitions = []
    for definition in program.definitions:
        value = definition.value
        if isinstance(value, Reduce) and definition.names[0] in finder.sums:
            value = finder.whole(value)
        definitions.append(replace(definition, value=value))
    if finder.found == 0:
        return program
    return replace(program, definitions=needed(definitions, program.results))


@dataclass(frozen=True, slots=True)
class _Part:
    """A factor that was a partial sum: its terms, and what it summed over."""

    terms: Expr
    axes: tuple[str, ...]


class _Finder:
    """Finds partial sums that one sum reads, as a factor."""

    def __init__(self, program: Program) -> None:
        self.builder = Builder.of(program)
        self.found = 0
        values = {name: d.value for d in program.definitions for name in d.names}
        self.pointwise = {n: v for n, v in values.items() if not isinstance(v, Reduce)}
        self.sums = {
            name: value
            for name, value in values.items()
            if isinstance(value, Reduce) and value.op == "sum" and value.condition is None
        }
        exprs = [e for value in values.values() for e in walk.expressions(value)]
        exprs += [result.value for result in program.results]
        self.reads = Counter(n.name for e in exprs for n in walk.nodes(e) if isinstance(n, Ref))

    def whole(self, value: Reduce) -> Reduce:
        """Return a sum with the terms of a partial sum, if it has one."""
        part = self._part(value.operand, set(value.axes))
        if part is None:
            return value
        self.found += 1
        return replace(value, operands=(part.terms,), axes=(*value.axes, *part.axes))

    def _is_part(self, partial: Reduce, over: set[str]) -> bool:
        """Say whether all that a partial sum multiplies has a part for each of its sums.

        Else it is a product that another one reads, and less work than one of both.
        """
        todo = [partial.operand]
        while todo:
            for node in walk.nodes(todo.pop()):
                body = self.pointwise.get(node.name) if isinstance(node, Ref) else None
                axes = {*node.type.axes}
                if body is not None:
                    todo.append(body)
                elif isinstance(node, Load | Ref) and axes & {*partial.axes} and not over <= axes:
                    return False
        return True

    def _part(self, expr: Expr, over: set[str]) -> _Part | None:
        """Return a product with a partial sum taken apart; None if it has none."""
        if isinstance(expr, Ref) and self.reads[expr.name] == 1:
            partial = self.sums.get(expr.name)
            if partial is not None and partial.operand.type.dtype.kind == "float":
                return (
                    _Part(partial.operand, partial.axes) if self._is_part(partial, over) else None
                )
            expr = self.pointwise.get(expr.name, expr)
        if not isinstance(expr, Apply) or expr.op != "mul":
            return None
        left, right = expr.arguments
        for one, other in ((left, right), (right, left)):
            part = self._part(one, over)
            # A factor with axes of its own would multiply every term, not their sum.
            if part is not None and {*other.type.axes} <= {*part.terms.type.axes}:
                sides = (part.terms, other) if one is left else (other, part.terms)
                return _Part(self.builder.mul(*sides), part.axes)
        return None
