"""Conditions of sums are brought to where products can do without them, or can be made of them.

    sum[d](q * k) if c, without d           -->  where(c, sum[d](q * k), 0)
    sum[j](x) if a, with axes x has not     -->  sum[j](where(a, 1, 0) * x) if a

The first is asked once for a whole sum, as the guard of a gathered row is. Reductions that have a
condition in common, as those of a softmax, keep it: their pass asks it once as it is. The second is
a product: the mean of a node's neighbours, sums of classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.presence import conjuncts
from redlang.ir.program import Apply, Definition, Expr, Load, Program, Reduce, Ref
from redlang.ir.types import F32, F64, Type
from redlang.schedule.contract import Product, split_sum
from redlang.schedule.operands import is_plain


def with_own_conditions(program: Program) -> Program:
    """Return a normalised program whose sums have the conditions that products have."""
    pointwise = {
        name: d.value
        for d in program.definitions
        for name in d.names
        if not isinstance(d.value, Reduce)
    }
    shared = Counter(
        (d.value.axes, d.value.condition)
        for d in program.definitions
        if isinstance(d.value, Reduce) and d.value.condition is not None
    )
    rewriter = _Rewriter(program, pointwise, {key for key, count in shared.items() if count > 1})
    found = tuple(d for definition in program.definitions for d in rewriter.of(definition))
    return program if found == program.definitions else replace(program, definitions=found)


def _sides(product: Product) -> Iterator[tuple[Expr, Expr]]:
    """Yield the operands of a product without a factor, each with the other one."""
    if product.outer is None:
        yield product.left, product.right
        yield product.right, product.left


def _is_gathered(expr: Expr) -> bool:
    return any(isinstance(n, Load) and not is_plain(n) for n in walk.nodes(expr))


class _Rewriter:
    """Rewrites the sums of one program."""

    def __init__(
        self,
        program: Program,
        pointwise: dict[str, Expr],
        shared: set[tuple[tuple[str, ...], Expr | None]],
    ) -> None:
        self.program = program
        self.pointwise = pointwise
        self.shared = shared
        self.builder = Builder.of(program)

    def of(self, definition: Definition) -> Iterator[Definition]:
        """Yield what stands for a definition."""
        value = definition.value
        if (
            not isinstance(value, Reduce)
            or value.op != "sum"
            or value.condition is None
            or value.types[0].dtype not in (F32, F64)
        ):
            yield definition
            return
        (name,) = definition.names
        over, operand = {*value.axes}, value.operand
        parts = self._conjuncts(value.condition)
        shared = (value.axes, value.condition) in self.shared
        outside = [part for part in parts if not (shared or over & {*part.type.axes})]
        condition = self.builder.conjunction(p for p in parts if p not in outside)
        found = None
        if condition is not None:
            found = self._product(operand, value)
            own = {*condition.type.axes} - {*operand.type.axes}
            if found is None and own and over <= {*operand.type.axes}:
                operand = self.builder.mul(self.builder.where(condition, 1.0, 0.0), operand)
                found = self._product(operand, value)
            if found is None:
                # One that is asked of whole sums alone leaves any sum, others only products.
                yield definition
                return
        if not outside:
            assert found is not None
            whole = replace(value, operands=(operand,))
            yield replace(definition, value=self._with_gathered(whole, found))
            return
        axes = {*operand.type.axes, *(() if condition is None else condition.type.axes)} - over
        type_ = Type(value.types[0].dtype, self.builder.union([axes]))
        whole = replace(value, operands=(operand,), condition=condition, types=(type_,))
        inner = Ref(f"{name}.whole", type_)
        yield replace(definition, names=(inner.name,), value=whole)
        test = self.builder.conjunction(outside)
        assert test is not None
        yield replace(definition, value=self.builder.where(test, inner, 0.0))

    def _with_gathered(self, value: Reduce, product: Product) -> Reduce:
        """Return a product whose gathered operand is 0 where its guard does not hold.

        Allowed where the weight is summed without the guard too: it is finite then.
        """
        assert value.condition is not None
        parts = self._conjuncts(value.condition)
        for side, weight in _sides(product):
            for left in self._summed_under(weight, value) if _is_gathered(side) else ():
                guards = [part for part in parts if part not in left]
                own = all({*part.type.axes} <= {*side.type.axes} for part in guards)
                test = self.builder.conjunction(guards)
                if test is None or not own or not all(part in parts for part in left):
                    continue
                operand = self.builder.mul(weight, self.builder.where(test, side, 0.0))
                return replace(value, operands=(operand,), condition=self.builder.conjunction(left))
        return value

    def _summed_under(self, weight: Expr, like: Reduce) -> Iterator[list[Expr]]:
        """Yield the conditions under which the program sums a weight alone."""
        for definition in self.program.definitions:
            value = definition.value
            if not isinstance(value, Reduce) or (value.op, value.axes) != ("sum", like.axes):
                continue
            if value.operand == weight:
                yield [] if value.condition is None else self._conjuncts(value.condition)

    def _conjuncts(self, condition: Expr) -> list[Expr]:
        """Return the parts of a condition, named ones taken apart too."""
        found: list[Expr] = []
        for part in conjuncts(condition):
            body = self.pointwise.get(part.name) if isinstance(part, Ref) else None
            joined = isinstance(body, Apply) and body.op == "and"
            found += self._conjuncts(body) if body is not None and joined else [part]
        return found

    def _product(self, operand: Expr, value: Reduce) -> Product | None:
        """Return what a sum of these terms multiplies, under a condition."""
        known = self.pointwise.get
        return split_sum(
            operand, value.axes, self.program, known, known, masked=True, ordered=False
        )
