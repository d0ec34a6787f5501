"""Factors of a product that a row's elements share, outside of maxima and exponentials.

    max((x * c) * d), exp((x * c) * d - point)   -->   max(x * d) * c, exp((x * d) * c - point)

takes an operation an element less: outside, c joins what a row has of factors already. x / c goes
the same way, by 1 / c. It is right where c is positive, so that rounding keeps elements in order,
and within the magnitudes at which factors may change places (`schedule.contract`). Where nothing
proves that, as for the reciprocal of a norm or a scale that the caller passes, a warp asks its rows
when a unit begins. One with another row, say with a norm of 0 or NaN, multiplies as the text does,
and has 1 outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.matrix_fills import POSITIVE, Kind
from redlang.codegen.cuda.matrix_presence import all_rows
from redlang.codegen.cuda.values import Operands
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.loops import Compute, Contract, Fold, Loop, Statement
from redlang.ir.program import Apply, Expr, Ref
from redlang.ir.types import F32, Type
from redlang.schedule import tidy
from redlang.schedule.contract import TAME

if TYPE_CHECKING:
    from redlang.codegen.cuda.matrix_unit import MatrixUnit

IsFragment = Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class Outer:
    """A factor that stands outside if a warp's rows allow it.

    Attributes:
        product: The name of the product.
        inside: The product times or by what its rows share, as the text has it.
    """

    product: str
    inside: Apply

    @property
    def operand(self) -> Expr:
        """Return what the text multiplies or divides by."""
        return self.inside.arguments[1]

    @property
    def outside(self) -> Ref:
        """Return what stands outside, which is positive: the factor, or 1."""
        return Ref(f"{self.product}.outer", Type(F32, self.operand.type.axes))


def with_outer_factors(
    body: Sequence[Statement],
    loop: Loop,
    readers: Iterable[Statement],
    builder: Builder,
    is_fragment: IsFragment,
    may_divide: Callable[[Expr], bool],
) -> tuple[tuple[Statement, ...], tuple[Outer, ...]]:
    """Return statements with factors outside, and which of these the rows are asked about.

    Args:
        body: The element work of a loop.
        loop: The loop.
        readers: All of it that may read element work.
        builder: The kernel's.
        is_fragment: Tells elements from values of rows.
        may_divide: Tells the factors that are known to be positive and far from the range's ends.
    """
    kept, found = tuple(body), []
    others = [s for s in readers if not isinstance(s, Compute | Fold)]
    read = frozenset[str]().union(*map(tidy.reads, others))
    ends = {f"{loop.axis}.first", f"{loop.axis}.last"}
    changing = frozenset(ends).union(*map(tidy.writes, loop.body))
    products = [s.name for s in loop.body if isinstance(s, Contract) and not s.accumulate]
    for product in products:
        inside = _inside(kept, product, is_fragment)
        if inside is None or walk.refs(inside.arguments[1]) & changing:
            continue
        outer = Outer(product, inside)
        factor: Expr = outer.operand
        if inside.op == "div":
            factor = builder.div(1.0, factor)
        # Rows take a reciprocal that calls nothing: products may be in flight.
        known = may_divide(factor) and not (inside.op == "div" and factor.type.axes)
        mover = _Mover(outer, factor if known else outer.outside, builder, is_fragment)
        moved = mover.moved(kept)
        if moved is not None and not mover.lacking & read:
            kept = moved
            found += [] if known else [outer]
    return kept, tuple(found)


def _inside(body: Sequence[Statement], name: str, is_fragment: IsFragment) -> Apply | None:
    """Return a product times or by what its rows share, if that is all that is read of it."""
    found: set[Apply | None] = set()
    for expr in (expr for statement in body for expr in tidy.expressions(statement)):
        found |= {None} if _is_named(expr, name) else set()
        for node, side, other in _sides(expr):
            if not _is_named(side, name):
                continue
            is_first = node.arguments[0] is side if isinstance(node, Apply) else False
            if not isinstance(node, Apply) or is_fragment(other) or other.type.dtype is not F32:
                found.add(None)
            elif node.op == "mul" or (node.op == "div" and is_first):
                found.add(replace(node, arguments=(side, other)))
            else:
                found.add(None)
    return found.pop() if len(found) == 1 else None


def _sides(expr: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Yield each node's arguments, each with the one across."""
    for node in walk.nodes(expr):
        sides = walk.children(node)
        for side, other in zip(sides, sides[::-1], strict=True):
            yield node, side, other


def _is_named(expr: Expr, name: str) -> bool:
    return isinstance(expr, Ref) and expr.name == name


class _Mover:
    """Moves a factor outwards.

    Attributes:
        lacking: The names whose values lack it.
    """

    def __init__(
        self, outer: Outer, outside: Expr, builder: Builder, is_fragment: IsFragment
    ) -> None:
        self.outer = outer
        self.outside = outside
        self.builder = builder
        self.is_fragment = is_fragment
        self.lacking = {outer.product}

    def moved(self, body: Sequence[Statement]) -> tuple[Statement, ...] | None:
        """Return statements with the factor outside; None where it cannot leave."""
        kept: list[Statement] = []
        for statement in body:
            done = tidy.map_expressions(statement, lambda e: walk.rewrite(e, self._rule))
            exprs = list(tidy.expressions(done))
            bare = self._bare(exprs[0]) if exprs else None
            if bare is not None:
                exprs[0] = bare
                if isinstance(done, Compute):
                    self.lacking.add(done.name)
                    done = replace(done, value=bare)
                elif not isinstance(done, Fold) or done.op not in ("max", "min"):
                    return None
            if not all(map(self._is_settled, exprs)):
                return None
            kept.append(done)
        return tuple(kept)

    def _bare(self, expr: Expr) -> Expr | None:
        """Return elements without the factor, if that is what they were multiplied by last."""
        if isinstance(expr, Apply) and expr.op == "mul" and expr.arguments[1] == self.outside:
            return expr.arguments[0] if self.is_fragment(expr.arguments[0]) else None
        return None

    def _rule(self, node: Expr) -> Expr:
        b, product = self.builder, self.outer.product
        if isinstance(node, Ref) and node.name in self.lacking and node.name != product:
            return b.mul(node, self.outside)
        if not isinstance(node, Apply) or node.op not in ("mul", "div"):
            return node
        one, other = node.arguments
        for first, second in ((one, other), (other, one))[: 2 if node.op == "mul" else 1]:
            if _is_named(first, product):
                return b.mul(first, self.outside)
            bare = self._bare(first)
            if bare is not None:
                return b.mul(b.apply(node.op, bare, second), self.outside)
        return node

    def _is_settled(self, expr: Expr) -> bool:
        """Say whether elements meet the factor only where a value of rows is added to them."""
        if self._bare(expr) is not None:
            return False
        return all(
            isinstance(node, Apply) and node.op in ("add", "sub") and not self.is_fragment(other)
            for node, side, other in _sides(expr)
            if self._bare(side) is not None
        )


def kinds_of(outers: Iterable[Outer]) -> dict[str, Kind]:
    """Return what is known of what stands outside."""
    return {outer.outside.name: POSITIVE for outer in outers}


def ask_rows(unit: MatrixUnit, outer: Outer) -> None:
    """Write whether a warp's rows may all have their factor outside, and what stands there."""
    frame, values = unit.frame, unit.values
    operand, operands = values.value(outer.operand), Operands()
    factor = given = operands.name(operand)
    if outer.inside.op == "div":
        factor = f"reciprocal({given}) * scale_of({given})"
    text = f"logical_and({given} >= f32({2.0**-TAME!r}), {given} <= f32({2.0**TAME!r}))"
    axes = operand.axes
    (tame,) = values.mapped("tame", ["bool"], [], [text], operands, axes, frame.depth)
    test, name = _variables(unit, outer)
    frame.line(f"{test} = {all_rows(unit, tame)}")
    asked = operands.name(Value(test, (), "bool"))
    text = f"select({asked}, {factor}, f32(1.0))"
    (found,) = values.mapped("outside", ["f32"], [], [text], operands, axes, frame.depth)
    frame.line(f"{name} = {found.text}")


def keep_inside(unit: MatrixUnit, outer: Outer) -> None:
    """Multiply or divide a tile's elements as the text does where the rows do not allow more."""
    frame = unit.frame
    test, name = _variables(unit, outer)
    elements, axes = frame.lookup(outer.product), outer.operand.type.axes
    assert elements is not None
    with frame.scope([], frozenset({outer.product})) as scope:
        frame.line(f"{elements.text} = {unit.values.value(outer.inside, 'inside').text}")
    unit.block(f"if not {test}:", scope.lines)
    frame.define(outer.outside.name, Value(name, frame.tile_axes(axes), "f32"))


def _variables(unit: MatrixUnit, outer: Outer) -> tuple[str, str]:
    """Return the variables of the rows' answer and of what stands outside."""
    names = unit.frame.module.names
    test = names.of("is_outside", outer.product, f"{outer.product}_is_outside")
    return test, names.of("outside", outer.product, f"{outer.product}_outside")
