"""Differences from a mean, to full precision: (y - c) - r in place of y - (c + r).

A mean near 10^5 in f32 is known to 10^-2 only, whatever care went into its sum; a row of standard
deviation 1 that is shifted by it is wrong in the third digit. So a mean that is subtracted from its
own elements gets a *rest*, the mean of what remains after the rounded mean was subtracted:

    mu = sum[n](w * y) / sum[n](w);   y - mu
      -->
    rest = sum[n](w * (y - mu));      (y - mu) - rest / sum[n](w)

Weights that are divided by their own sum first, as those of a softmax, need no divisor; what their
rounding adds up to is then part of the rest.

In real arithmetic the rest is 0, so the program means what it meant. In the incremental form the
sum is kept about a centre, and the rest is at hand without another look at the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from redlang.algebra.sharing import Pool, canonical
from redlang.algebra.terms import factors_of, is_number, without
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.program import (
    Apply,
    Cast,
    Definition,
    Expr,
    Program,
    Reduce,
    Ref,
    Size,
)
from redlang.ir.types import F32


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that is subtracted from its own elements.

    Attributes:
        value: The mean as the program writes it.
        rest: The name of its rest.
        quotient: The rest divided by the sum of weights, if that is not 1.
    """

    value: Expr
    rest: str
    quotient: Expr


def centred(program: Program) -> tuple[Program, tuple[Mean, ...]]:
    """Return the program with rests, and the means that have one."""
    finder = _Finder(program)
    rewritten = walk.map_program(program, finder.rewritten)
    if not finder.means:
        return program, ()
    definitions: list[Definition] = []
    for definition in rewritten.definitions:
        definitions.append(definition)
        definitions.extend(finder.rests_after(definition))
    program = replace(rewritten, definitions=tuple(definitions))
    return program, tuple(finder.means.values())


class _Finder:
    """Finds differences from means, and what the rest of each mean is."""

    def __init__(self, program: Program) -> None:
        self.build = Builder.of(program)
        self.pool = Pool()
        self.means: dict[int, Mean] = {}
        self.rests: dict[str, list[Definition]] = {}
        self.places = {
            name: i for i, definition in enumerate(program.definitions) for name in definition.names
        }
        self.definitions = program.definitions
        self.taken = set(self.places)

    def rewritten(self, expr: Expr) -> Expr:
        """Return `expr` with the rest subtracted beside each mean."""
        return walk.rewrite(expr, self._difference)

    def rests_after(self, definition: Definition) -> list[Definition]:
        """Return the definitions of the rests that follow `definition`."""
        return self.rests.get(definition.names[-1], [])

    def _difference(self, node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.op != "sub" or node.type.dtype is not F32:
            return node
        left, right = node.arguments
        if (mean := self._mean(right, left)) is not None:
            return self.build.sub(node, mean.quotient)
        if (mean := self._mean(left, right)) is not None:
            return self.build.add(node, mean.quotient)
        return node

    def _mean(self, value: Expr, element: Expr) -> Mean | None:
        """Return the mean that `value` is, if it is one of `element`."""
        opened = self._opened(value)
        parts = opened.arguments if isinstance(opened, Apply) and opened.op == "div" else (value,)
        total = self._sum(parts[0])
        if total is None or total.operand.type.dtype is not F32:
            return None
        if not set(total.axes) <= set(element.type.axes):
            return None
        weights = without(self._factors(total.operand), self._factors(element))
        if weights is None:
            return None
        is_mean = (
            self._weighs(parts[1], weights, total)
            if len(parts) > 1
            else self._sums_to_one(weights, total)
        )
        if not is_mean:
            return None
        key = id(self._closed(value))
        if key not in self.means:
            self.means[key] = self._with_rest(value, element, weights, total, parts)
        return self.means[key]

    def _opened(self, expr: Expr) -> Expr:
        """Return what a name stands for, as far as names of names go."""
        while isinstance(expr, Ref | Cast):
            if isinstance(expr, Cast):
                if expr.explicit or expr.operand.type.dtype.kind != expr.type.dtype.kind:
                    return expr
                expr = expr.operand
                continue
            value = self._defined(expr)
            if value is None or isinstance(value, Reduce):
                return expr
            expr = value
        return expr

    def _defined(self, ref: Ref) -> Expr | Reduce | None:
        """Return what the program defines as a name; of a rest it knows nothing."""
        place = self.places.get(ref.name)
        return None if place is None else self.definitions[place].value

    def _closed(self, expr: Expr) -> Expr:
        """Return `expr` with the names of pointwise definitions opened, interned."""

        def rule(node: Expr) -> Expr:
            opened = self._opened(node) if isinstance(node, Ref) else node
            return opened if opened is node else walk.rewrite(opened, rule)

        return self.pool.intern(walk.rewrite(expr, rule))

    def _sum(self, expr: Expr) -> Reduce | None:
        opened = self._opened(expr)
        if isinstance(opened, Ref):
            value = self._defined(opened)
            if isinstance(value, Reduce) and value.op == "sum":
                return value
        return None

    def _weighs(self, divisor: Expr, weights: list[Expr], total: Reduce) -> bool:
        """Return whether `divisor` is the sum of the weights over the elements of `total`."""
        divisor = _value(divisor)
        opened = _value(self._opened(divisor))
        reduce = None
        if isinstance(opened, Ref):
            reduce = self._defined(opened)
        if isinstance(reduce, Reduce):
            same = set(reduce.axes) == set(total.axes) and self._same_elements(reduce, total)
            if reduce.op == "count":
                return same and not weights
            if reduce.op == "sum" and same and weights:
                own = self._factors(reduce.operand)
                return sorted(map(id, own)) == sorted(map(id, weights))
            return False
        sizes = [_value(factor) for factor in factors_of(opened)]
        axes = [size.axis for size in sizes if isinstance(size, Size)]
        whole = len(axes) == len(sizes) and sorted(axes) == sorted(total.axes)
        return whole and not weights and total.condition is None

    def _sums_to_one(self, weights: list[Expr], total: Reduce) -> bool:
        """Return whether the weights are one quotient, by the sum of what is divided."""
        if len(weights) != 1:
            return False
        (weight,) = weights
        if not (isinstance(weight, Apply) and weight.op == "div"):
            return False
        above, below = weight.arguments
        return self._weighs(below, list(self._factors(above)), total)

    def _same_elements(self, a: Reduce, b: Reduce) -> bool:
        return self._condition(a) is self._condition(b)

    def _condition(self, reduce: Reduce) -> Expr | None:
        """Return the condition under which an element takes part; a count counts by one."""
        parts = [] if reduce.condition is None else [self._closed(reduce.condition)]
        if reduce.op == "count" and not is_number(reduce.operand, True):
            parts.append(self._closed(reduce.operand))
        return canonical(parts, self.build, self.pool)

    def _factors(self, expr: Expr) -> tuple[Expr, ...]:
        """Return the factors of a product, names opened, interned."""
        return factors_of(self._closed(expr))

    def _with_rest(
        self,
        value: Expr,
        element: Expr,
        weights: list[Expr],
        total: Reduce,
        parts: tuple[Expr, ...],
    ) -> Mean:
        """Define the rest of a mean after everything that it reads."""
        build = self.build
        weight: Expr | None = None
        for factor in weights:
            weight = factor if weight is None else build.mul(weight, factor)
        difference: Expr = build.sub(element, value)
        operand = difference if weight is None else build.mul(weight, difference)
        rest = build.reduce("sum", total.axes, operand, condition=total.condition, span=total.span)
        own, *divisor = parts
        base = self._opened(own)
        assert isinstance(base, Ref)
        name = self._fresh(f"{base.name}.rest")
        read = walk.value_refs(rest).union(*map(walk.refs, divisor))
        last = max((self.places[n] for n in read), default=0)
        after = self.definitions[last].names[-1]
        self.rests.setdefault(after, []).append(Definition((name,), rest, total.span))
        ref = Ref(name, rest.types[0], total.span)
        return Mean(value, name, build.div(ref, divisor[0]) if divisor else ref)

    def _fresh(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self.taken:
            number += 1
            candidate = f"{name}{number}"
        self.taken.add(candidate)
        return candidate


def _value(expr: Expr) -> Expr:
    """Return what an implicit conversion converts."""
    while isinstance(expr, Cast) and not expr.explicit:
        expr = expr.operand
    return expr
