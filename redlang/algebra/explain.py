"""Verdicts: proofs carried out, and plans in formulas that a reader can check."""

from __future__ import annotations

from dataclasses import replace

from redlang.algebra.claims import (
    Points,
    bases,
    claims_of,
    finished,
    moved,
    moves_in_order,
    points_of,
    prover_for,
)
from redlang.algebra.derive import (
    Declined,
    Multiplied,
    Ordered,
    Plain,
    Stage,
    StagePlan,
    Transported,
)
from redlang.algebra.monoids import SAMPLES, Laws
from redlang.algebra.prove import METHOD, Broken, Claim, Open, assumptions, checked
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.algebra.transport import Maximum, Phi, Reference, value
from redlang.algebra.verdicts import Fused, Proof, Refuted, StageVerdict, Undecided, Witness
from redlang.algebra.witness import Search
from redlang.ir.program import Expr, Ref
from redlang.ir.types import Type


def plain(stage: Stage, view: View) -> Fused:
    """Return the verdict on a stage that reads nothing carried."""
    op = stage.reduce.op
    operands = ", ".join(map(view.text, stage.operands))
    proof = Proof(f"{op} is associative and has a neutral value", method="law of the reduction")
    state = (f"{op} of {operands}{_under(stage.condition, view)}",)
    return Fused(stage.name, stage.reduce.axes, state, (), f"{op} of both", "the state", proof)


def lawful(stage: Stage, known: Laws, view: View) -> Fused:
    """Return the verdict on a stage that reduces by a user's monoid."""
    seed, digits, _ = checked()
    how = (
        METHOD if known.proved else "numbers on states that elements can reach; SymPy left it open"
    )
    proof = Proof(
        "associative, with init neutral", (), known.identities, how, seed, digits, SAMPLES
    )
    return replace(plain(stage, view), proof=proof)


def fused(plan: StagePlan, view: View, signs: Signs) -> StageVerdict:
    """Prove a plan; return the verdict with its formulas."""
    if isinstance(plan, Plain):
        return plain(plan.stage, view)
    stage, build = plan.stage, view.build
    claims = claims_of(plan, build)
    prover = prover_for(plan, view, signs)
    outcome = prover.prove_all(claims)
    match outcome:
        case Broken(claim, witness):
            return Refuted(stage.name, _equation(claim, view), Witness((), (), (), witness))
        case Open(claim, reason):
            return Undecided(stage.name, f"{_equation(claim, view)} ({reason})")
    if isinstance(plan, Ordered) and (broken := moves_in_order(plan, view, signs)):
        return Refuted(stage.name, _order_obligation(plan, view), Witness((), (), (), broken))
    seed, digits, samples = checked()
    proof = Proof(
        _obligation(plan, view),
        _assumptions(plan, view, signs),
        tuple(dict.fromkeys(_equation(claim, view) for claim in claims)),
        METHOD,
        seed,
        digits,
        samples,
    )
    match plan:
        case Transported():
            return _transported(plan, view, proof)
        case Ordered():
            return _ordered(plan, view, proof)
        case Multiplied():
            return _multiplied(plan, view, proof)


def declined(stage: Stage, view: View, signs: Signs, why: Declined) -> StageVerdict:
    """Return the verdict on a stage that is not carried; a witness if one is found."""
    witness: Witness | None = None
    if why.gate == "closure" and stage.reduce.op in ("sum", "count"):
        witness = Search(_summand(stage, view), view, signs).rank()
    elif why.gate == "order":
        witness = Search(why.subject or stage.operand, view, signs).order()
    if witness is None:
        return Undecided(stage.name, why.obligation)
    return Refuted(stage.name, why.obligation, witness)


def _summand(stage: Stage, view: View) -> Expr:
    """Return what a sum or count adds for an element, 0 where it takes no part."""
    build = view.build
    operand = stage.operand
    if stage.reduce.op == "count":
        operand = build.where(operand, 1.0, 0.0)
    if stage.condition is not None:
        operand = build.where(stage.condition, operand, build.convert(0, operand.type.dtype))
    return view.pool.intern(operand)


def _equation(claim: Claim, view: View) -> str:
    return f"{view.text(claim.left)} = {view.text(claim.right)}"


def _under(condition: Expr | None, view: View) -> str:
    return "" if condition is None else f" where {view.text(condition)}"


def _obligation(plan: StagePlan, view: View) -> str:
    match plan:
        case Transported():
            return "phi(x, c') = T(c, c') phi(x, c) for all x, c, c'"
        case Ordered():
            return _order_obligation(plan, view)
        case _:
            return "the product of C * g over n elements is C^n times the product of g"


def _order_obligation(plan: Ordered, view: View) -> str:
    way = "rises" if plan.hoisted.rising else "falls"
    strictly = " strictly" if plan.hoisted.strict else ""
    return f"{view.text(plan.hoisted.psi(_free(plan)))} {way}{strictly} with g"


def _free(plan: Ordered) -> Ref:
    return Ref("g", Type(plan.hoisted.element.type.dtype))


def _assumptions(plan: StagePlan, view: View, signs: Signs) -> tuple[str, ...]:
    match plan:
        case Ordered():
            return plan.hoisted.facts
        case Transported():
            parts = [f.value for c in plan.terms for f in c.term.factors if f.op != "where"]
            weights = [c.top.element for c in plan.terms if c.centres and c.top.element]
            return assumptions(signs, view.text, [*parts, *weights])
        case _:
            return ()


def _transported(plan: Transported, view: View, proof: Proof) -> Fused:
    build = view.build
    points = points_of(plan)
    names = {phi: f"S{i}" for i, phi in enumerate(bases(plan))}

    def sums(phi: Phi) -> Expr:
        return Ref(names[phi], Type(phi.dtype))

    state = [_point(reference, name, points, view) for reference, name in points.names.items()]
    transport = []
    for phi, name in names.items():
        term = f"sum of {view.text(value(phi, points.now, build))}"
        shown = "count" if phi.counts else term
        state.append(f"{name} = {shown}{_under(phi.condition, view)}")
        later = view.text(moved(phi, points, sums, build))
        if later != name:
            transport.append(f"{name}' = {later}")
    total: Expr | None = None
    for carried in plan.terms:
        part = finished(carried, points, sums, build)
        total = part if total is None else build.add(total, part)
    finish = view.text(total) if total is not None else "0"
    for guard in plan.guards:
        finish = f"where({view.text(guard)}, {finish}, 0)"
    merge = (
        "both sides moved to their common reference points, then added"
        if points.names
        else ("the sum of both")
    )
    return Fused(
        plan.stage.name,
        plan.stage.reduce.axes,
        tuple(state),
        tuple(transport),
        merge,
        finish,
        proof,
    )


def _point(reference: Reference, name: str, points: Points, view: View) -> str:
    """Return what a reference point is."""
    if isinstance(reference, Maximum):
        return f"{name} = running maximum of {view.text(reference.element)}"
    assert reference.weight is not None
    text = f"{name} = running mean of {view.text(reference.element)}"
    if reference.weight.counts:
        return text
    return f"{text} weighted by {view.text(value(reference.weight, points.now, view.build))}"


def _ordered(plan: Ordered, view: View, proof: Proof) -> Fused:
    hoisted, stage = plan.hoisted, plan.stage
    state = (f"M = {plan.op} of {view.text(hoisted.element)}{_under(plan.condition, view)}",)
    psi = view.text(plan.test(hoisted.psi(Ref("M", Type(hoisted.element.type.dtype)))))
    return Fused(stage.name, stage.reduce.axes, state, (), f"{plan.op} of both", psi, proof)


def _multiplied(plan: Multiplied, view: View, proof: Proof) -> Fused:
    stage, term = plan.stage, plan.term
    element = "1" if term.element is None else view.text(term.element)
    factors = "".join(
        f" {'*' if f.op == 'mul' else '/'} {view.text(f.value)}" for f in term.factors
    )
    state = (
        f"P = product of {element} as mantissa and exponent{_under(plan.condition, view)}",
        f"n = count{_under(plan.condition, view)}",
    )
    finish = f"P * ({term.number}{factors})^n"
    if plan.power is not None:
        finish = f"P ** ({view.text(plan.power)})"
    return Fused(stage.name, stage.reduce.axes, state, (), "product and sum", finish, proof)
