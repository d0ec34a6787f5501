"""Which tiles of a sweep have elements that take part."""

from __future__ import annotations

from collections.abc import Callable

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.incremental import Each, Let, Partial, Sweep
from redlang.ir.program import Expr, Ref
from redlang.schedule.bounds import possible

Lookup = Callable[[str], Expr | None]

LARGEST = 256
"""Nodes of a condition that is worth a test of every tile, with every name written out."""


def visited(sweep: Sweep, pointwise: Lookup, builder: Builder) -> Expr | None:
    """Return a test for tiles in which some stage has an element, if all have conditions.

    Args:
        sweep: The sweep.
        pointwise: Gives the expression of a name that stands for one.
        builder: The program's.
    """
    each = {s.name: s.value for s in sweep.update if isinstance(s, Each | Let)}

    def lookup(name: str) -> Expr | None:
        return each.get(name) or pointwise(name)

    def rule(node: Expr) -> Expr:
        body = lookup(node.name) if isinstance(node, Ref) else None
        return node if body is None else walk.rewrite(body, rule)

    tests: list[Expr] = []
    for step in sweep.update:
        if not isinstance(step, Partial):
            continue
        condition = step.condition
        if condition is None or walk.tree_size(condition, lookup) > LARGEST:
            return None
        test = possible(walk.rewrite(condition, rule), builder)
        if test is None:
            return None
        tests.append(test)
    return builder.disjunction(tests)
