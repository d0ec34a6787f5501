"""Verdicts in words and formulas."""

from __future__ import annotations

from redlang.algebra.derive import Declined, Plain, Stage, StagePlan
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.algebra.verdicts import Fused, Proof, StageVerdict, Undecided
from redlang.ir.printing import to_text


def plain(stage: Stage) -> Fused:
    """Return the verdict on a stage that reads nothing carried."""
    text = ", ".join(map(to_text, stage.operands))
    op = stage.reduce.op
    proof = Proof(f"{op} is associative and has a neutral value", method="law of the reduction")
    return Fused(
        stage.name, stage.reduce.axes, (f"{op} of {text}",), (), f"{op} of the two", "as it is", proof
    )


def fused(plan: StagePlan, view: View, signs: Signs) -> StageVerdict:
    """Return the verdict on a plan."""
    if isinstance(plan, Plain):
        return plain(plan.stage)
    return plain(plan.stage)


def declined(stage: Stage, view: View, signs: Signs, why: Declined) -> StageVerdict:
    """Return the verdict on a stage that could not be carried."""
    return Undecided(stage.name, why.obligation)
