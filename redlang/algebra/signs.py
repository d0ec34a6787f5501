"""Signs of expressions, from the operators' laws and from what definitions reduce."""

from __future__ import annotations

from collections.abc import Mapping

from redlang.algebra.operators import (
    ANY,
    FOLDED_SIGNS,
    LAWS,
    NONNEGATIVE,
    OF_NOTHING,
    Sign,
)
from redlang.algebra.sharing import conjuncts
from redlang.ir import walk
from redlang.ir.monotony import WRAPPING, is_small
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Index,
    Literal,
    Load,
    Program,
    Reduce,
    Ref,
    Size,
)

_FAR = frozenset({"sum", "prod", "max", "min", "topk"})
"""Integers that wrap, and the one furthest from all others, which is the maximum of none."""


class Signs:
    """Possible signs of the expressions of one program, where they are defined at all."""

    def __init__(
        self,
        program: Program | None = None,
        known: Mapping[str, Sign] | None = None,
        visible: tuple[Expr, ...] | None = None,
    ) -> None:
        """Compute the signs of a program's definitions.

        Args:
            program: Whose definitions to look at.
            known: Facts about some of them.
            visible: Conditions that the reader's elements fulfil: reductions under them saw
                something, any others under conditions may have seen nothing. None stands for a
                reader who knows that all saw something.
        """
        self._names: dict[str, Sign] = {}
        self._known: dict[int, tuple[Expr, Sign]] = {}
        if program is not None:
            for definition in program.definitions:
                value = definition.value
                if isinstance(value, Reduce):
                    rule = FOLDED_SIGNS.get(value.op)
                    first = rule(self.of(value.operand)) if rule else ANY
                    if value.types[0].dtype.kind == "int" and value.op in _FAR:
                        first = ANY
                    parts = conjuncts(value.condition) if visible is not None else ()
                    if not all(part in (visible or ()) for part in parts):
                        first |= OF_NOTHING.get(value.op, ANY)
                    self._names.update(dict.fromkeys(definition.names[1:], ANY))
                    self._names[definition.names[0]] = first
                else:
                    self._names[definition.names[0]] = self.of(value)
                self._names.update(
                    (name, known[name]) for name in definition.names if known and name in known
                )

    def of(self, expr: Expr) -> Sign:
        """Return the signs that `expr` may have."""
        for node in walk.nodes(expr):
            if id(node) not in self._known:
                parts = [self._known[id(child)][1] for child in walk.children(node)]
                self._known[id(node)] = (node, self._node(node, parts))
        return self._known[id(expr)][1]

    def positive(self, expr: Expr) -> bool:
        """Return whether `expr` is known to be positive."""
        return self.of(expr) is Sign.POSITIVE

    def nonnegative(self, expr: Expr) -> bool:
        """Return whether `expr` is known not to be negative."""
        return not self.of(expr) & Sign.NEGATIVE

    def _node(self, node: Expr, parts: list[Sign]) -> Sign:
        match node:
            case Literal(value):
                return _sign_of_number(value)
            case Index():
                return NONNEGATIVE
            case Size():
                # Where an element exists, no axis is empty.
                return Sign.POSITIVE
            case Load():
                return ANY
            case Ref(name):
                return self._names.get(name, ANY)
            case Apply(op) if node.type.dtype.kind == "int" and op in WRAPPING:
                if not is_small(node):
                    return ANY
                return LAWS[op].sign(*parts)
            case Apply("mul", (left, right)) if left is right or left == right:
                return LAWS["abs"].sign(parts[0])
            case Apply("pow", (_, Literal(exponent))) if exponent in (2, 4, 6, 8):
                return LAWS["abs"].sign(parts[0])
            case Apply("pow", (_, Literal(exponent))) if exponent in (1, 3, 5, 7):
                return parts[0]
            case Apply(op):
                return LAWS[op].sign(*parts)
            case Cast():
                # Rounding may reach zero, and never crosses it.
                return parts[0] | Sign.ZERO if node.explicit else parts[0]
            case _:
                return NONNEGATIVE if node.type.dtype.kind in ("bool", "uint") else ANY


def _sign_of_number(value: bool | int | float) -> Sign:
    if value != value:
        return ANY
    return Sign.POSITIVE if value > 0 else Sign.NEGATIVE if value < 0 else Sign.ZERO
