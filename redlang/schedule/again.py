"""Whether rows may lie in registers as they are stored, and be computed with anew for each fold."""

from __future__ import annotations

from redlang.ir import walk
from redlang.ir.incremental import Partial
from redlang.ir.program import Apply, Expr, Load
from redlang.schedule.facts import Facts
from redlang.schedule.operations import COSTLY, SPECIAL
from redlang.schedule.uses import step_expressions

WORD = 4
"""Bytes of a register."""


def suits(facts: Facts) -> bool:
    """Tell whether a nest stores its rows again, and computes next to nothing of them."""
    along, nest = facts.vector, facts.nest
    results = [facts.program.results[n] for n in nest.results]
    if along not in {*facts.swept, *facts.mapped} or all(along not in r.axes for r in results):
        return False
    reads = [access for access in facts.accesses if not access.written]
    if any(a.size > WORD or (a.gathered and along in a.axes) for a in reads):
        return False
    sweeps = (*nest.sweeps, *facts.used_inner)
    partial = [step for s in sweeps for step in s.update if isinstance(step, Partial)]
    if any(step.monoid or step.k or "arg" in step.op for step in partial):
        return False
    folded = [e for s in sweeps for e in step_expressions(s)]
    for node in (n for e in facts.reached(folded) for n in walk.nodes(e)):
        # What all rows read, a row would read for each fold.
        if isinstance(node, Load) and not set(nest.base) <= set(node.type.axes):
            return False
    roots = [*folded, *(r.value for r in results)]
    return not any(_is_costly(n, along) for e in facts.reached(roots) for n in walk.nodes(e))


def _is_costly(node: Expr, along: str | None) -> bool:
    """Tell whether a special function is computed of elements along an axis."""
    if not isinstance(node, Apply) or not (node.op in SPECIAL or node.op in COSTLY):
        return False
    # A divisor that the axis shares is a factor.
    operands = node.arguments[1:] if node.op == "div" else node.arguments
    return any(along in operand.type.axes for operand in operands)
