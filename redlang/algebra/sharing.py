"""One object for each expression: equal expressions become identical ones.

The algebra compares sub-expressions all the time, and expressions that share parts are trees of
exponential size to `==`. In a `Pool` every expression is interned bottom-up, so that equality is
identity and a walk visits each part once.
"""

from __future__ import annotations

from collections.abc import Iterable

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.printing import to_text
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load, Ref, Scalar, Size


class Pool:
    """Interned expressions; `intern` of equal expressions gives the same object."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._known: dict[int, tuple[Expr, Expr]] = {}

    def intern(self, expr: Expr) -> Expr:
        """Return the pool's own object for `expr`."""
        for node in walk.nodes(expr):
            if id(node) not in self._known:
                parts = [self._known[id(child)][1] for child in walk.children(node)]
                shared = walk.rebuild(node, parts)
                key = (_own(shared), *map(id, parts))
                shared = self._nodes.setdefault(key, shared)
                # The node itself is kept too: its id must not be given to another one.
                self._known[id(node)] = (node, shared)
                self._known[id(shared)] = (shared, shared)
        return self._known[id(expr)][1]


def _own(expr: Expr) -> tuple[object, ...]:
    """Return what distinguishes a node from others with the same children."""
    match expr:
        case Literal(value, type_):
            # repr tells -0.0 from 0.0 and makes nan equal to itself.
            return ("literal", repr(value), type_)
        case Index(axis, type_):
            return ("index", axis, type_)
        case Size(axis, type_):
            return ("size", axis, type_)
        case Scalar(name, type_):
            return ("scalar", name, type_)
        case Ref(name, type_):
            return ("ref", name, type_)
        case Load(array, _, guarded, type_):
            return ("load", array, guarded, type_)
        case Apply(op, _, type_):
            return ("apply", op, type_)
        case Cast(_, to, type_, explicit):
            return ("cast", to, type_, explicit)
        case _:
            return (type(expr).__name__, expr.type)


def conjuncts(condition: Expr | None) -> tuple[Expr, ...]:
    """Return the parts of a conjunction; none for None, which always holds."""
    if condition is None:
        return ()
    if isinstance(condition, Apply) and condition.op == "and":
        return tuple(part for argument in condition.arguments for part in conjuncts(argument))
    return (condition,)


def canonical(conditions: Iterable[Expr | None], build: Builder, pool: Pool) -> Expr | None:
    """Return the conjunction of all conditions, the same object however they were joined."""
    parts = {id(p): p for c in conditions for part in conjuncts(c) for p in (pool.intern(part),)}
    ordered: list[Expr] = sorted(parts.values(), key=to_text)
    joined = build.conjunction(ordered)
    return joined and pool.intern(joined)
