"""Sums of weighted differences from what each row has become sums of weights and of elements.

    sum[n](p * (v - o) ** 2)   -->   sum[n](p * w * w) - 2 * u * sum[n](p * w) + u * u * sum[n](p)
                                     w = v - c, u = o - c, c amid v

where p has rows, v columns and o both: a term for each row, element and column is what no matrix
unit multiplies. Squares of 16-bit numbers have twice their digits, so that they are stored as two
such numbers. The sums are of rounded weights, and all three of the same ones, for which p is also
multiplied by an array of ones: then they are the sum of weighted squares that a text has, of these
weights, however far o lies from c. What c takes away is what sums of f32 would lose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from redlang.ir import walk
from redlang.ir.build import Builder, convert
from redlang.ir.presence import conjuncts
from redlang.ir.program import Apply, Cast, Definition, Expr, Literal, Load, Program, Reduce, Ref
from redlang.ir.types import BF16, F32, DType

SHORT = 16
"""Bits of results whose digits sums of 16-bit squares have."""


def with_moments(program: Program) -> Program:
    """Return a normalised program whose weighted differences are sums of products."""
    if any(r.dtype.kind == "float" and r.dtype.bits > SHORT for r in program.results):
        return program
    expander = _Expander(program)
    for definition in program.definitions:
        expander.made += expander.of(definition)
    made = tuple(expander.made)
    return program if made == program.definitions else replace(program, definitions=made)


@dataclass(frozen=True, slots=True)
class _Difference:
    """A factor of a term: an element less what each row has."""

    element: Expr
    row: Expr


@dataclass(slots=True)
class _Expander:
    """Rewrites the sums of one program."""

    program: Program
    made: list[Definition] = field(default_factory=list)

    @property
    def builder(self) -> Builder:
        """What makes expressions."""
        return Builder.of(self.program)

    def bare(self, expr: Expr) -> Expr:
        """Return what a name stands for, where that is no reduction."""
        while isinstance(expr, Ref):
            body = next((d.value for d in self.made if expr.name in d.names), None)
            if body is None or isinstance(body, Reduce):
                break
            expr = body
        return expr

    def of(self, definition: Definition) -> list[Definition]:
        """Return what stands for a definition."""
        value = definition.value
        if not isinstance(value, Reduce) or value.op != "sum" or value.types[0].dtype is not F32:
            return [definition]
        factors = list(self._factors(value.operand))
        found = [self._difference(factor, {*value.axes}) for factor in factors]
        differences = [d for d in found if d is not None]
        weights = [f for f, d in zip(factors, found, strict=True) if d is None]
        if len(differences) not in (1, 2) or not weights or len(set(differences)) > 1:
            return [definition]
        weight = weights[0]
        for factor in weights[1:]:
            weight = self.builder.mul(weight, factor)
        if not self._is_product(differences[0], weight, {*value.axes}):
            return [definition]
        return self._expanded(definition, value, weight, differences)

    def _factors(self, expr: Expr) -> Iterator[Expr]:
        bare = self.bare(expr)
        match bare:
            case Apply(op="mul", arguments=(left, right)):
                yield from self._factors(left)
                yield from self._factors(right)
            case Apply(op="pow", arguments=(base, Literal(value=exponent))) if exponent == 2:
                yield from (base, base)
            case _:
                yield expr

    def _difference(self, expr: Expr, over: set[str]) -> _Difference | None:
        bare = self.bare(expr)
        if not isinstance(bare, Apply) or bare.op != "sub":
            return None
        element, row = bare.arguments
        if over & {*row.type.axes} or not over <= {*element.type.axes}:
            return None
        return _Difference(element, row)

    def _is_product(self, difference: _Difference, weight: Expr, over: set[str]) -> bool:
        """Say whether weights have rows, elements of 16 bits have columns, and differences both."""
        rows = {*weight.type.axes} - {*difference.element.type.axes}
        columns = {*difference.element.type.axes} - {*weight.type.axes}
        own = {*difference.row.type.axes}
        dtype = self._stored(difference.element)
        return over <= {*weight.type.axes} and bool(rows & own and columns & own) and dtype is BF16

    def _stored(self, expr: Expr) -> DType | None:
        """Return the type of the array that an expression is an element of."""
        bare = self.bare(expr)
        while isinstance(bare, Cast) and bare.to is F32:
            bare = self.bare(bare.operand)
        return self.program.array(bare.array).dtype if isinstance(bare, Load) else None

    def _expanded(
        self, definition: Definition, value: Reduce, weight: Expr, differences: list[_Difference]
    ) -> list[Definition]:
        b, (name,) = self.builder, definition.names
        element, row = differences[0].element, differences[0].row
        made = _Sums(value, name, self.made, b)
        if len(differences) == 1:
            count = made.total(weight, "count")
            first = made.total(b.mul(weight, element), "first")
            return [*made.new, replace(definition, value=b.sub(first, b.mul(row, count)))]
        centre = made.centre(element)
        centred = convert(b.cast(b.sub(element, centre), BF16), F32)
        first = made.total(b.mul(weight, centred), "first")
        ones = b.where(b.apply("eq", element, element), 1.0, 1.0)
        count = made.total(b.mul(weight, ones), "count")
        # A mean divides by the sum of weights that are not rounded.
        shift = b.mul(centre, made.total(weight, "weights"))
        made.replace(b.mul(weight, element), b.add(first, shift))
        square = b.mul(centred, centred)
        upper = convert(b.cast(square, BF16), F32)
        lower = convert(b.cast(b.sub(square, upper), BF16), F32)
        second = b.add(
            made.total(b.mul(weight, upper), "upper"), made.total(b.mul(weight, lower), "lower")
        )
        step = b.sub(row, centre)
        rest = b.mul(step, b.sub(first, b.mul(step, count)))
        whole = b.sub(b.sub(second, b.mul(step, first)), rest)
        bare = self.bare(weight)
        if isinstance(bare, Apply) and bare.op == "exp":
            whole = b.apply("maximum", whole, 0.0)
        return [*made.new, replace(definition, value=whole)]


class _Sums:
    """The sums that one sum becomes, some of which a program has already."""

    def __init__(self, value: Reduce, name: str, known: list[Definition], builder: Builder) -> None:
        self.value = value
        self.name = name
        self.known = known
        self.builder = builder
        self.new: list[Definition] = []

    def total(self, term: Expr, name: str) -> Expr:
        """Return the sum of a term, as the program sums."""
        reduce = self._reduce(term)
        for definition in self.known:
            if definition.value == reduce:
                return Ref(definition.names[0], reduce.types[0])
        return self._defined(name, reduce)

    def centre(self, element: Expr) -> Expr:
        """Return what elements are taken from: about the middle of them, or 0.

        Where all lie from half of the middle to one and a half, differences from it are exact in
        their 16 bits. Elsewhere no sum is so much larger than what is left of it.
        """
        b, axes, asked = self.builder, {*element.type.axes}, self.value.condition
        type_ = replace(self.value.types[0], axes=b.union([axes - {*self.value.axes}]))
        parts = () if asked is None else conjuncts(asked)
        seen = b.conjunction(part for part in parts if {*part.type.axes} <= axes)
        ends = []
        for op, nothing in (("min", math.inf), ("max", -math.inf)):
            finite = b.where(b.apply("isfinite", element), element, nothing)
            ends.append(self._defined(op, Reduce(op, self.value.axes, (finite,), seen, (type_,))))
        halves = [b.mul(end, 0.5) for end in ends]
        middle = convert(b.cast(b.add(*halves), BF16), F32)
        reach = b.mul(b.apply("abs", middle), 0.5)
        near = b.conjunction(
            b.apply("le", b.apply("abs", b.sub(end, middle)), reach) for end in ends
        )
        assert near is not None
        return b.where(near, middle, 0.0)

    def replace(self, term: Expr, value: Expr) -> None:
        """Let a sum that the program has be made of new ones, which come before it."""
        reduce = self._reduce(term)
        for place, definition in enumerate(self.known):
            later = walk.refs(value) & {n for d in self.known[place:] for n in d.names}
            if definition.value == reduce and not later:
                known = replace(definition, value=value)
                self.known[place : place + 1] = [*self.new, known]
                self.new = []

    def _reduce(self, term: Expr) -> Reduce:
        shown = () if self.value.condition is None else self.value.condition.type.axes
        axes = {*term.type.axes, *shown} - {*self.value.axes}
        type_ = replace(self.value.types[0], axes=self.builder.union([axes]))
        return replace(self.value, operands=(term,), types=(type_,))

    def _defined(self, name: str, reduce: Reduce) -> Expr:
        self.new.append(Definition((f"{self.name}.{name}",), reduce))
        return Ref(self.new[-1].names[0], reduce.types[0])
