"""Which pointwise definitions are cheap enough to be computed anew wherever they are read."""

from __future__ import annotations

from collections.abc import Mapping

from redlang.ir import walk
from redlang.ir.program import Apply, Definition, Expr, Reduce

# Above this many nodes, or with one of these, a pointwise value is computed once and kept.
CHEAP_NODES = 9
COSTLY = frozenset({"exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "sin", "cos", "pow"})
# So is one that has more nodes than this when all that is cheap in it is written out.
INLINED_NODES = 64


class Inlining:
    """The definitions of a program that are written out wherever they are read."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        """Look at definitions by their names, each of which reads only those before it."""
        self._bodies: dict[str, Expr] = {}
        for name, definition in definitions.items():
            value = definition.value
            if isinstance(value, Reduce) or not _is_cheap(value):
                continue
            if walk.tree_size(value, self.body) <= INLINED_NODES:
                self._bodies[name] = value

    def body(self, name: str) -> Expr | None:
        """Return the expression of a definition that is written out, None for any other."""
        return self._bodies.get(name)


def _is_cheap(expr: Expr) -> bool:
    nodes = list(walk.nodes(expr))
    costly = any(isinstance(node, Apply) and node.op in COSTLY for node in nodes)
    return len(nodes) <= CHEAP_NODES and not costly
