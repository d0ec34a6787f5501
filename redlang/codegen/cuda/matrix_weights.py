"""Exponentials of a tile's elements, made cheap without changing what they mean.

    exp(x * k - point)   -->   2^(x * (k log2 e) - scaled),   scaled = clip(point log2 e)

One fused multiply-add and one instruction an element. The reference point is any finite number, so
its rounded, scaled form serves as well, as long as all exponentials of the sweep use the same: the
factors that move a state to a new point (`exp(old - point)`) are rewritten alike. Allowed where the
point is proved to lie within the largest floats, as the algebra's reference points do. Rounding: a
weight e^-t is off by at most t 2^-23 of itself, which in sums of weights stays below 2^-24 of the
largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.loops import Compute, Statement
from redlang.ir.program import Apply, Expr, Literal, Ref
from redlang.ir.types import F32, Type
from redlang.schedule import tidy

LOG2_E = 1.4426950408889634
LARGEST = 3.4028234663852886e38

IsFragment = Callable[[Expr], bool]
"""Whether an expression varies along the registers of a fragment."""


@dataclass(frozen=True, slots=True)
class Power:
    """`name = 2^exponent` at every element, by the fast instruction."""

    name: str
    exponent: Expr
    type: Type


def with_powers(
    body: Sequence[Statement], builder: Builder, is_fragment: IsFragment
) -> tuple[Statement | Power, ...]:
    """Return statements in which exponentials of elements are powers of two.

    Args:
        body: The element work of a loop.
        builder: The kernel's.
        is_fragment: Tells elements from values of rows.
    """
    return _Rewriter(body, builder, is_fragment).run()


class _Rewriter:
    def __init__(
        self, body: Sequence[Statement], builder: Builder, is_fragment: IsFragment
    ) -> None:
        self.body = body
        self.builder = builder
        self.is_fragment = is_fragment
        self.values = {s.name: s.value for s in body if isinstance(s, Compute)}
        self.points: list[Expr] = []
        self.done: dict[Expr, Ref] = {}
        self.out: list[Statement | Power] = []

    def run(self) -> tuple[Statement | Power, ...]:
        """Rewrite statement by statement."""
        self.points = [
            point
            for statement in self.body
            for expr in _expressions(statement)
            for node in walk.nodes(expr)
            if (point := self._point(node)) is not None
        ]
        for statement in self.body:
            self.out.append(tidy.map_expressions(statement, self._rewritten))
        return tuple(self.out)

    def _rewritten(self, expr: Expr) -> Expr:
        return walk.rewrite(expr, self._rule)

    def _rule(self, node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.op != "exp" or node.type.dtype is not F32:
            return node
        exponent = self._exponent(node.arguments[0])
        if exponent is None:
            return node
        if node not in self.done:
            name = f"power.{len(self.done)}"
            type_ = Type(F32, node.type.axes)
            self.out.append(Power(name, exponent, type_))
            self.done[node] = Ref(name, type_)
        return self.done[node]

    def _point(self, node: Expr) -> Expr | None:
        """Return the reference point of an exponential of elements, if it has a safe one."""
        if not isinstance(node, Apply) or node.op != "exp" or not self.is_fragment(node):
            return None
        match node.arguments[0]:
            case Apply(op="sub", arguments=(_, point)) if self._is_safe(point):
                return point
            case _:
                return None

    def _is_safe(self, point: Expr) -> bool:
        """Say whether a value of rows lies within the largest floats, or is NaN."""
        if self.is_fragment(point):
            return False
        value = self.values.get(point.name) if isinstance(point, Ref) else point
        match value:
            case Apply(op="clip", arguments=(_, Literal(low), Literal(high))):
                return -LARGEST <= low <= high <= LARGEST
            case Literal(number):
                return abs(number) <= LARGEST
            case _:
                return False

    def _exponent(self, argument: Expr) -> Expr | None:
        b = self.builder
        match argument:
            case Apply(op="sub", arguments=(x, point)) if self._is_safe(point):
                if self.is_fragment(x):
                    return b.sub(self._times(x), self._scaled(point))
                if point in self.points and self._is_safe(x):
                    return b.sub(self._scaled(x), self._scaled(point))
        if self.is_fragment(argument):
            return self._times(argument)
        return None

    def _times(self, x: Expr) -> Expr:
        """Return x log2 e, the constant joined to a factor that elements share."""
        b = self.builder
        if isinstance(x, Apply) and x.op == "mul":
            for factor, rest in (x.arguments, x.arguments[::-1]):
                if not self.is_fragment(factor):
                    return b.mul(rest, b.mul(factor, LOG2_E))
        return b.mul(x, LOG2_E)

    def _scaled(self, point: Expr) -> Expr:
        b = self.builder
        return b.apply("clip", b.mul(point, LOG2_E), -LARGEST, LARGEST)


def _expressions(statement: Statement) -> list[Expr]:
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    tidy.map_expressions(statement, note)
    return found


def is_exponential(expr: Expr, elements: Sequence[Statement | Power]) -> bool:
    """Say whether a value is an exponential, by its name or as it is written."""
    if isinstance(expr, Ref):
        maker = next(
            (e for e in elements if isinstance(e, Compute | Power) and e.name == expr.name), None
        )
        if isinstance(maker, Compute):
            return is_exponential(maker.value, elements)
        return maker is not None
    return isinstance(expr, Apply) and expr.op in ("exp", "exp2")
