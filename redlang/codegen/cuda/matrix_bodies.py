"""Bodies of loops without what the text of matrix tiles does not need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redlang.ir import walk
from redlang.ir.loops import Compute, Contract, Kernel, Loop, Statement
from redlang.ir.program import Expr, Ref
from redlang.schedule import tidy


def is_counted(contract: Contract) -> bool:
    """Say whether a product's sums are integers."""
    return contract.type.dtype.kind == "int"


def without_unread(kernel: Kernel, body: Iterable[Statement]) -> tuple[Statement, ...]:
    """Return a loop's body without values that nothing in the kernel reads."""
    kept = tuple(body)
    outside = frozenset[str]().union(
        *(tidy.reads(s) for s in kernel.body if not isinstance(s, Loop) or s.body != kept)
    )
    while True:
        read = outside.union(*map(tidy.reads, kept))
        left = tuple(s for s in kept if isinstance(s, Loop) or tidy.writes(s) & read)
        if left == kept:
            return kept
        kept = left


def inlined_conditions(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Write truth values and whole numbers out where they are read, and drop them."""
    values: dict[str, Expr] = {}
    kept: list[Statement] = []
    written = frozenset[str]().union(*map(tidy.writes, body))

    def rule(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Ref) else node

    for statement in body:
        done = tidy.map_expressions(statement, lambda e: walk.rewrite(e, rule))
        if (
            isinstance(done, Compute)
            and done.type.dtype.kind in ("bool", "int")
            and not walk.refs(done.value) & written
        ):
            values[done.name] = done.value
        else:
            kept.append(done)
    return tuple(kept)
