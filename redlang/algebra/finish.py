"""The finish of a sweep: its stages' results from its states.

Results are computed in the program's order; each may read those before it. What was not seen gives
the reduction's identity before anything else, so that an undefined context of an empty row never
shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from redlang.algebra.derive import Multiplied, Ordered, Plain, Stage, StagePlan, Transported
from redlang.algebra.distance import Distances
from redlang.algebra.incremental import Emitter
from redlang.algebra.infinite import finite_scales, honest, honest_distance
from redlang.algebra.monotone import Hoisted
from redlang.algebra.operators import SWAPPED, Sign
from redlang.algebra.sharing import canonical
from redlang.algebra.signs import Signs
from redlang.algebra.states import identity
from redlang.algebra.transport import CarriedTerm, Centre, Phi, finish
from redlang.ir import walk
from redlang.ir.build import Builder, literal
from redlang.ir.incremental import Let
from redlang.ir.program import Expr, Literal, Ref
from redlang.ir.types import F64, I64, Type


def emit(plan: StagePlan, emitter: Emitter, distances: Distances, signs: Signs) -> list[Let]:
    """Ask `emitter` for the states of a plan; return the steps that define its stage."""
    match plan:
        case Plain(stage):
            lets = _plain(stage, emitter)
            distances.results.update((let.name, let.value) for let in lets)
            return lets
        case Transported():
            return _transported(plan, emitter, distances, signs)
        case Ordered():
            return _ordered(plan, emitter, signs)
        case Multiplied():
            return _multiplied(plan, emitter, signs)


def finite(rest: Let, build: Builder) -> Let:
    """Return the rest of a mean; 0 where it is not finite, for nothing is added to an infinity."""
    known = build.apply("isfinite", rest.value)
    return replace(rest, value=build.where(known, rest.value, 0))


def _plain(stage: Stage, emitter: Emitter) -> list[Let]:
    reduce, name = stage.reduce, stage.name
    if reduce.op == "monoid":
        return _monoid(stage, emitter)
    if reduce.op == "count":
        # Counting true elements is counting elements under one more condition.
        condition = emitter.build.conjunction([stage.condition, _truth(stage.operands[0])])
        (ref,) = emitter.plain(name, "count", [literal(True)], condition)
        return [Let(name, ref)]
    dtype = reduce.types[0].dtype
    if reduce.op == "sum" and dtype.kind == "float":
        # A sum that later stages subtract, as a mean, is kept about a centre.
        condition = canonical([stage.condition], emitter.build, emitter.pool)
        phi = Phi(emitter.pool.intern(stage.operand), None, (), (), condition, dtype)
        return [Let(name, emitter.sum(phi, name))]
    return _results(stage, reduce.op, stage.operands, stage.condition, emitter, lambda g: g)


def _truth(expr: Expr) -> Expr | None:
    return None if isinstance(expr, Literal) and expr.value is True else expr


def _results(
    stage: Stage,
    op: str,
    operands: tuple[Expr, ...],
    condition: Expr | None,
    emitter: Emitter,
    psi: Callable[[Expr], Expr],
) -> list[Let]:
    """Emit a reduction without transport; its results are psi of what is reduced."""
    reduce, name, build = stage.reduce, stage.name, emitter.build
    if op == "prod" and reduce.types[0].dtype.kind == "float":
        mantissa, exponent = emitter.plain(name, "mantissa", operands, condition)
        return [Let(name, build.apply("ldexp", mantissa, exponent))]
    refs = emitter.plain(name, op, operands, condition, k=reduce.k, slots=reduce.new_axis)
    if op in ("argmax", "argmin"):
        return _positions(stage.names, refs[1], stage, emitter)
    if op == "topk":
        values, index = (
            _slots(ref, type_) for ref, type_ in zip(refs, reduce.types[:2], strict=True)
        )
        return [
            Let(stage.names[0], psi(values)),
            *_positions(stage.names[1:], index, stage, emitter),
        ]
    return [Let(name, psi(refs[0]))]


def _slots(ref: Ref, type_: Type) -> Ref:
    """Return a top-k state as the result that it becomes, one element a slot."""
    return Ref(ref.name, Type(ref.type.dtype, type_.axes))


def _positions(names: tuple[str, ...], index: Ref, stage: Stage, emitter: Emitter) -> list[Let]:
    """Return one index an axis from a row-major one; -1 stays -1."""
    build, axes = emitter.build, stage.reduce.axes
    if len(axes) == 1:
        return [Let(names[0], index)]
    lets = []
    none = build.apply("lt", index, 0)
    for i, name in enumerate(names):
        position: Expr = index
        for axis in axes[i + 1 :]:
            position = build.apply("floordiv", position, build.size(axis))
        if i:
            position = build.apply("mod", position, build.size(axes[i]))
        lets.append(Let(name, build.where(none, literal(-1, I64), position)))
    return lets


def _monoid(stage: Stage, emitter: Emitter) -> list[Let]:
    monoid = stage.reduce.monoid
    assert monoid is not None
    axes = emitter.free_axes([*stage.operands, *([stage.condition] if stage.condition else [])])
    types = [Type(part.type.dtype, axes) for part in monoid.init]
    refs = emitter.plain(
        stage.name, "monoid", stage.operands, stage.condition, types=types, monoid=monoid
    )
    values: dict[str, Expr] = {f"a.{i}": ref for i, ref in enumerate(refs)}
    return [
        Let(name, walk.substitute(part, values, rebuild=emitter.build.rebuild))
        for name, part in zip(stage.names, monoid.finish, strict=True)
    ]


def _transported(
    plan: Transported, emitter: Emitter, distances: Distances, signs: Signs
) -> list[Let]:
    build, name = emitter.build, plan.stage.name
    dtype = plan.stage.reduce.types[0].dtype
    zero = build.convert(0, dtype)
    total: Expr | None = None

    bare: Expr | None = None
    for carried in plan.terms:
        for phi in carried.basis():
            if any(centre.moves for centre, _ in phi.centres):
                emitter.state(phi, name)
        for centre in carried.centres:
            if centre.weight is not None:
                emitter.point(centre, name)
        if carried.top.maximum is not None:
            emitter.point(carried.top.maximum, name)
        part = finish(carried, distances.of, lambda phi: emitter.sum(phi, name), build)
        bare = part if bare is None else build.add(bare, part)
        far = honest_distance(carried, distances, signs, build)
        shown = honest(carried, signs, build)

        def seen(inner: Expr, carried: CarriedTerm = carried) -> Expr:
            # Where nothing was chosen, what remains is 0 times what is outside.
            nothing = zero if carried.top.outer is None else emitter.sum(carried.top, name)
            return build.where(emitter.seen(carried.inner, name), inner, nothing)

        part = finish(shown, far, lambda phi: emitter.sum(phi, name), build, seen=seen)
        outside = carried.term.factors[carried.term.inside :]
        if outside or (carried.term.mixed and not carried.term.chosen):
            part = build.where(emitter.seen(carried.shown, name), part, zero)
        total = part if total is None else build.add(total, part)
    if bare is not None:
        distances.results[name] = bare
    if total is not None and _is_near_zero(plan, signs):
        # About a centre, squares of constant elements may leave a rounding error below 0.
        total = build.apply("maximum", total, zero)
    return [Let(name, _guarded(plan.guards, total or zero, zero, emitter))]


def _is_near_zero(plan: Transported, signs: Signs) -> bool:
    """Say whether what is added up is never negative, and finished from differences."""
    centred = any(carried.centres for carried in plan.terms)
    return centred and signs.nonnegative(plan.stage.operand)


def _guarded(guards: tuple[Expr, ...], value: Expr, otherwise: Expr, emitter: Emitter) -> Expr:
    for guard in guards:
        value = emitter.build.where(guard, value, otherwise)
    return value


def _honest(plan: Ordered, emitter: Emitter, signs: Signs) -> Callable[[Expr], Expr]:
    """Return psi, or NaN where an infinite element meets an infinite context: inf - inf, inf / inf.

    If psi turned the extreme value into a number all the same, as exp does, such a NaN would be
    lost. It can only come from the elements' other extreme, so that is kept as well. An infinite
    scale makes NaN of zeros, which may stand anywhere.
    """
    hoisted, build = plan.hoisted, emitter.build
    if plan.stage.reduce.op in ("max", "min"):
        hoisted = _scaled_finitely(hoisted, signs, build)
    dtype = hoisted.element.type.dtype
    other = Sign.NEGATIVE if plan.op == "max" else Sign.POSITIVE
    safe = not hoisted.absorbing or not signs.of(hoisted.element) & other
    if safe or plan.op not in ("max", "min") or dtype.kind != "float":
        return hoisted.psi
    element = hoisted.element
    (state,) = emitter.plain(plan.stage.name, SWAPPED[plan.op], [element], plan.condition)
    poisoned = build.apply("isnan", hoisted.psi(state))

    def psi(value: Expr) -> Expr:
        result = hoisted.psi(value)
        return build.where(poisoned, literal(math.nan, result.type.dtype), result)

    return psi


def _scaled_finitely(hoisted: Hoisted, signs: Signs, build: Builder) -> Hoisted:
    """Return psi that is NaN where it multiplies by what is not finite."""
    scales = finite_scales(hoisted.scales, hoisted.element, signs)
    if not scales:
        return hoisted

    def psi(value: Expr) -> Expr:
        result = hoisted.psi(value)
        nan = literal(math.nan, result.type.dtype)
        for scale in scales:
            result = build.where(build.apply("isfinite", scale), result, nan)
        return result

    return replace(hoisted, psi=psi)


def _ordered(plan: Ordered, emitter: Emitter, signs: Signs) -> list[Let]:
    stage, build = plan.stage, emitter.build
    element = (plan.hoisted.element,)
    psi = _honest(plan, emitter, signs)
    lets = _results(stage, plan.op, element, plan.condition, emitter, lambda g: plan.test(psi(g)))
    seen = emitter.seen(plan.condition, stage.name)
    guarded = []
    for position, let in enumerate(lets):
        ranks = stage.reduce.op in ("argmax", "argmin")
        nothing = identity(stage.reduce.op, let.value.type.dtype, position + ranks)
        if position == 0 and stage.reduce.op == "topk":
            # Slots beyond the visible elements hold the identity, whatever psi makes of it.
            index = lets[1].value
            value: Expr = build.where(build.apply("ge", index, 0), let.value, nothing)
        else:
            value = let.value if ranks else build.where(seen, let.value, nothing)
        guarded.append(Let(let.name, _guarded(plan.guards, value, nothing, emitter)))
    return guarded


def _multiplied(plan: Multiplied, emitter: Emitter, signs: Signs) -> list[Let]:
    """Return prod((C * g) ** u) as (C^n * prod(g)) ** u, where n counts the elements.

    Powers are taken of logarithms in f64, so that C^n may be as small or large as prod(g) is large
    or small.
    """
    stage, build, term = plan.stage, emitter.build, plan.term
    dtype, name = stage.reduce.types[0].dtype, stage.name
    element = term.element if term.element is not None else build.convert(1, dtype)
    elements = [build.convert(element, dtype)]
    mantissa, exponent = emitter.plain(name, "mantissa", elements, plan.condition)
    wide = build.convert(mantissa, F64)
    if plan.power is None:
        value = _scaled_product(wide, exponent, plan, emitter, signs)
    else:
        logarithm = build.add(build.apply("log2", wide), build.convert(exponent, F64))
        power = build.convert(plan.power, F64)
        value = build.apply("exp2", build.mul(logarithm, power))
        # Anything to the power 0 is 1, be it infinite.
        value = build.where(build.apply("eq", power, 0.0), literal(1.0, F64), value)
    one = build.convert(1, dtype)
    seen = emitter.seen(plan.condition, name)
    value = build.where(seen, build.convert(value, dtype), one)
    return [Let(name, _guarded(plan.guards, value, one, emitter))]


def _scaled_product(
    wide: Expr, exponent: Expr, plan: Multiplied, emitter: Emitter, signs: Signs
) -> Expr:
    """Return C^n * (wide * 2^exponent)."""
    build = emitter.build
    (count,) = emitter.plain(plan.stage.name, "count", [literal(True)], plan.condition)
    factor: Expr = build.convert(float(plan.term.number), F64)
    for part in plan.term.factors:
        factor = build.apply(part.op, factor, build.convert(part.value, F64))
    magnitude = build.apply("log2", build.apply("abs", factor))
    logarithm = build.mul(build.convert(count, F64), magnitude)
    whole = build.apply("floor", logarithm)
    scale: Expr = build.apply("exp2", build.sub(logarithm, whole))
    if signs.of(factor) & Sign.NEGATIVE:
        odd = build.apply("eq", build.apply("mod", count, 2), 1)
        negative = build.apply("and", odd, build.apply("lt", factor, 0.0))
        scale = build.where(negative, build.neg(scale), scale)
    shifted = build.add(exponent, build.convert(whole, I64))
    usual = build.apply("ldexp", build.mul(wide, scale), shifted)
    # A factor of 0, inf or NaN has no finite logarithm.
    direct = build.mul(build.apply("ldexp", wide, exponent), build.apply("pow", factor, count))
    return build.where(build.apply("isfinite", logarithm), usual, direct)


def centres_of(plan: StagePlan) -> list[Centre]:
    """Return the centres that a plan's terms move about."""
    if not isinstance(plan, Transported):
        return []
    return [centre for term in plan.terms for centre in term.centres if centre.weight]
