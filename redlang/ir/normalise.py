"""Masks become conditions: the form of a program that every later stage reads.

    s = where(n <= m, q * k)              s = q * k
    p = exp(s - max[n](s))         -->    max.1 = max[n](s) if n <= m
    sum[n](p)                             p = exp(s - max.1)
                                          sum.1 = sum[n](p) if n <= m

A definition keeps its value where its elements are absent, since nothing counts it there: each
reduction carries the condition under which an element takes part, and `fill` chooses by it. Arrays
are read inside their bounds only. Arg-reductions and top-k order by the value before strictly
monotone maps, so that a softmax selects on its logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from redlang.ir import monotony, walk
from redlang.ir.axis_by_axis import axis_by_axis
from redlang.ir.build import Builder
from redlang.ir.presence import Conditions, Presence, retyped
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Definition,
    Expr,
    Literal,
    Program,
    Reduce,
    Ref,
    Result,
)
from redlang.ir.settle import settle
from redlang.ir.types import BOOL, Type


def normalise(program: Program) -> Program:
    """Return the program without masks, fills and guarded loads.

    Args:
        program: As resolved. A normalised program comes back as it is.
    """
    form = _Form(program)
    for definition in program.definitions:
        form.define(definition)
    results = tuple(form.result(result) for result in program.results)
    definitions = needed(form.definitions, results)
    return axis_by_axis(replace(program, definitions=definitions, results=results))


@dataclass(slots=True)
class _Form:
    """The normalised program while it is made."""

    program: Program
    build: Builder = field(init=False)
    presence: Presence = field(init=False)
    conditions: dict[str, Conditions] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    values: dict[str, Expr | Reduce] = field(default_factory=dict)
    aliases: dict[str, Expr] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.build = Builder.of(self.program)
        arrays = {p.name: p.axes for p in self.program.params if isinstance(p, ArrayParam)}
        self.presence = Presence(self.build, arrays, self.conditions, self.types)

    def define(self, definition: Definition) -> None:
        """Take over one definition, in its order."""
        value = definition.value
        if isinstance(value, Reduce):
            self._reduce(definition, value)
            return
        (name,) = definition.names
        bare, conditions = self._split(value)
        self.conditions[name] = conditions
        if isinstance(bare, Ref | Literal):
            # What is only a mask around a name, or a choice that is settled, is that name.
            self.aliases[name] = bare
        else:
            self._add(replace(definition, value=bare))

    def result(self, result: Result) -> Result:
        """Return a result without masks: what is absent in it is not stored."""
        value, _ = self._split(result.value)
        return result if value is result.value else replace(result, value=value)

    def _add(self, definition: Definition) -> None:
        self.definitions.append(definition)
        self.values.update(dict.fromkeys(definition.names, definition.value))
        self.types.update(zip(definition.names, walk.value_types(definition.value), strict=True))

    def _split(self, expr: Expr) -> tuple[Expr, Conditions]:
        """Return `expr` without masks and aliases, and when its elements are there."""
        value, conditions = self.presence.split(expr)
        settled = map(self._settle, conditions)
        return self._settle(value), tuple(part for part in settled if not _is_true(part))

    def _settle(self, expr: Expr) -> Expr:
        return settle(self._named(expr), self.build)

    def _named(self, expr: Expr) -> Expr:
        """Return `expr` with aliases replaced by what they stand for."""
        if not self.aliases:
            return expr
        return walk.substitute(expr, self.aliases, rebuild=partial(retyped, self.build))

    def _reduce(self, definition: Definition, value: Reduce) -> None:
        parts = [self._split(operand) for operand in value.operands]
        found = [part for _, conditions in parts for part in conditions]
        if value.condition is not None:
            bare, needed = self._split(value.condition)
            found += [*needed, bare]
        operands = tuple(operand for operand, _ in parts)
        if value.op == "sum":
            operands, chosen = self._without_zeros(operands[0])
            found += chosen
        condition = self._along(value.axes, operands, self.build.conjunction(found))
        kept = {axis for part in operands for axis in part.type.axes}
        kept |= set(condition.type.axes) if condition is not None else set()
        kept = (kept - set(value.axes)) | ({value.new_axis} if value.new_axis else set())
        types = tuple(replace(type_, axes=self.build.union([kept])) for type_ in value.types)
        bare_reduce = replace(value, operands=operands, condition=condition, types=types)
        if value.op in ("argmax", "argmin", "topk"):
            self._select(definition, bare_reduce)
        else:
            self._add(replace(definition, value=bare_reduce))

    def _without_zeros(self, operand: Expr) -> tuple[tuple[Expr], list[Expr]]:
        """Return what a sum adds, and when: `where(c, x, 0)` takes part where `c` holds."""
        value: Expr | Reduce = operand
        while isinstance(value, Ref) and isinstance(self.values.get(value.name), Expr):
            value = self.values[value.name]
        if not isinstance(value, Apply) or value.op != "where":
            return (operand,), []
        condition, then, other = value.arguments
        if _is_zero(then):
            condition, then, other = self.build.apply("not", condition), other, then
        if not _is_zero(other) or then.type.dtype is not operand.type.dtype:
            return (operand,), []
        return (then,), [condition]

    def _along(
        self, axes: Sequence[str], operands: Sequence[Expr], condition: Expr | None
    ) -> Expr | None:
        """Return a condition that keeps a reduced axis which a mask alone had brought in."""
        parts = [*operands, *([condition] if condition is not None else [])]
        present = {axis for part in parts for axis in part.type.axes}
        missing = [self.build.apply("ge", self.build.index(a), 0) for a in axes if a not in present]
        return self.build.conjunction([condition, *missing])

    # Arg-reductions

    def _select(self, definition: Definition, value: Reduce) -> None:
        """Order by what a strictly monotone map is applied to.

            p = exp(s - m) / z;  w, i = topk[e](p, k)
              -->
            w.key, i = topk[e](s, k);  w = where(i >= 0, exp(w.key - m) / z, -inf)

        Allowed where the map is strictly monotone along the reduced axes and everything else in
        it does not vary there. A decreasing map turns argmax into argmin, and top-k selects on the
        negative. The values of top-k are the map at what was selected.
        """
        path, key, direction = self._before_maps(value)
        if value.op == "topk" and direction < 0 and _is_negation(path[-1][0]):
            # What top-k selects on there is the negative, which is written already.
            (key, _), direction = path.pop(), 1
        if not path:
            self._add(replace(definition, value=value))
            return
        if value.op != "topk":
            swapped = {"argmax": "argmin", "argmin": "argmax"}[value.op]
            op = value.op if direction > 0 else swapped
            self._add(replace(definition, value=replace(value, op=op, operands=(key,))))
            return
        if direction < 0:
            key = self.build.neg(key)
        values, *indices = definition.names
        types = (replace(value.types[0], dtype=key.type.dtype), *value.types[1:])
        selected = f"{values}.key"
        ordered = replace(value, operands=(key,), types=types)
        self._add(replace(definition, names=(selected, *indices), value=ordered))
        mapped: Expr = Ref(selected, types[0], definition.span)
        if direction < 0:
            mapped = self.build.neg(mapped)
        for expr, position in reversed(path):
            parts = list(walk.children(expr))
            parts[position] = mapped
            mapped = retyped(self.build, expr, parts)
        first = Ref(indices[0], value.types[1], definition.span)
        there = self.build.apply("ge", first, 0)
        nothing = Literal(float("-inf"), Type(value.types[0].dtype, weak=True))
        chosen = Apply("where", (there, mapped, nothing), value.types[0], definition.span)
        self._add(Definition((values,), chosen, definition.span))

    def _before_maps(self, value: Reduce) -> tuple[list[tuple[Expr, int]], Expr, int]:
        """Return the maps that make the operand, outermost first, what they map, and a direction.

        The direction is 1 where the operand rises with what is mapped and -1 where it falls. The
        search ends where what is mapped lacks an axis: an index over fewer axes has another type.
        """
        path: list[tuple[Expr, int]] = []
        best: tuple[list[tuple[Expr, int]], Expr, int] = ([], value.operand, 1)
        expr, direction = value.operand, 1
        axes = set(value.operand.type.axes)
        while True:
            if isinstance(expr, Ref) and isinstance(self.values.get(expr.name), Expr):
                inner = self.values[expr.name]
                assert not isinstance(inner, Reduce)
                expr = inner
                continue
            step = monotony.step(expr, value.axes, self.values.get)
            if step is None:
                return best
            path = [*path, (expr, step.position)]
            direction *= step.direction
            expr = walk.children(expr)[step.position]
            if set(expr.type.axes) == axes:
                best = (path, expr, direction)


def needed(definitions: Iterable[Definition], results: Iterable[Result]) -> tuple[Definition, ...]:
    """Return the definitions that results depend on, in order."""
    wanted: set[str] = set()
    for result in results:
        wanted |= walk.refs(result.value)
        if result.condition is not None:
            wanted |= walk.refs(result.condition)
    kept: list[Definition] = []
    for definition in reversed(list(definitions)):
        if not wanted.isdisjoint(definition.names):
            kept.append(definition)
            wanted |= walk.value_refs(definition.value)
    return tuple(reversed(kept))


def _is_negation(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op == "neg"


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == 0


def _is_true(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.type.dtype is BOOL and bool(expr.value)
