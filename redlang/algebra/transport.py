"""Context transport: the state of a carried sum, and how it moves to other contexts.

A sum of terms `C(u) F(x, u)` is carried as sums of a few functions phi(x, c) taken at *reference
points* c of the stage's own, in place of the contexts u. Three laws make the space of the phi
closed, each with a matrix T that moves a sum from one reference point to another:

    exp(e - c')     = exp(c - c') exp(e - c)                                    rank 1
    (y - c')^k      = sum over i <= k of binom(k, i) (c - c')^(k-i) (y - c)^i   rank k + 1
    cos(y - u)      = cos(u) cos(y) + sin(u) sin(y), and sin alike               rank 2

Products of such functions have the tensor product of their matrices. phi is F with its derivatives,
up to constants. Moving to the final contexts, once and at the end, gives the stage's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from math import comb
from typing import Literal, TypeAlias

from redlang.algebra.operators import Sign
from redlang.algebra.sharing import canonical
from redlang.algebra.signs import Signs
from redlang.algebra.terms import Exponential, Factor, Rotation, Shift, Term, View, apply_factor
from redlang.ir.build import Builder
from redlang.ir.printing import to_text
from redlang.ir.program import Apply, Expr
from redlang.ir.types import DType


@dataclass(frozen=True, slots=True)
class Maximum:
    """Reference point of an exponential: the running maximum of its exponent's element part."""

    base: Literal["exp", "exp2"]
    element: Expr
    condition: Expr | None
    dtype: DType


@dataclass(frozen=True, slots=True)
class Centre:
    """Reference point of a shift: the running mean of `element` under a weight.

    Attributes:
        element: What is shifted.
        weight: The weight, a phi without shifts; None for the origin, which never moves: integers
            are exact wherever they are centred, and a rest of a mean is near 0 already.
        top: In place of a mean, the running maximum of the element: where that is subtracted, and
            where exponents themselves are summed.
    """

    element: Expr
    weight: Phi | None
    dtype: DType
    top: Maximum | None = None

    @property
    def moves(self) -> bool:
        """Return whether it is no fixed point."""
        return self.weight is not None or self.top is not None


Reference: TypeAlias = Maximum | Centre

Turn: TypeAlias = tuple[Literal["cos", "sin"], Expr]


@dataclass(frozen=True, slots=True)
class Phi:
    """A function whose sum is carried: element . exp(e - c)^t . (y - c)^k ... . cos(y) ...

    Attributes:
        element: A factor without reference points; None for 1.
        maximum: The exponential factor's reference point.
        centres: The shifted factors' reference points with their powers, all positive.
        rotations: cos and sin of elements.
        condition: Elements that take part.
        dtype: The type in which it is summed.
        choice: Where it is false there is 0 in place of all factors so far, times `outer`.
        outer: A factor outside of that choice; there is none without the other.
        times: How many times the exponential is a factor.
        parts: The factors of `element` in the order of the text, where that is kept.
    """

    element: Expr | None
    maximum: Maximum | None
    centres: tuple[tuple[Centre, int], ...]
    rotations: tuple[Turn, ...]
    condition: Expr | None
    dtype: DType
    choice: Expr | None = None
    outer: Expr | None = None
    times: int = 1
    parts: tuple[Expr, ...] = field(default=(), compare=False)

    @property
    def counts(self) -> bool:
        """Return whether the sum counts elements."""
        parts = self.element or self.maximum or self.centres or self.rotations or self.outer
        return not parts


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term with the reference points chosen for it.

    Attributes:
        term: What is summed.
        top: The phi of which the sum is the term's, at its own contexts.
        centres: The shifts' reference points.
        shown: Elements that take part.
        inner: Those of them at which the term is not a chosen 0.
    """

    term: Term
    top: Phi
    centres: tuple[Centre, ...]
    shown: Expr | None
    inner: Expr | None

    def basis(self) -> Iterator[Phi]:
        """Yield every phi that the term needs, the highest powers first."""
        powers = [range(power, -1, -1) for _, power in self.top.centres]
        centres = [centre for centre, _ in self.top.centres]
        turns: list[tuple[Turn, Turn]] = [(("cos", y), ("sin", y)) for _, y in self.top.rotations]
        for chosen in product(*powers):
            pairs = tuple((c, k) for c, k in zip(centres, chosen, strict=True) if k)
            for rotations in product(*turns):
                yield replace(self.top, centres=pairs, rotations=_turns(rotations))


Point = Callable[[Reference], Expr]
"""The value of a reference point."""

Sums = Callable[[Phi], Expr]
"""The sum of a phi, or the phi itself where laws are stated for one element."""


def carry(
    term: Term,
    condition: Expr | None,
    dtype: DType,
    view: View,
    signs: Signs,
    is_plain_mean: Callable[[Shift], bool] = lambda _: False,
    is_maximum: Callable[[Shift], bool] = lambda _: False,
) -> CarriedTerm:
    """Choose reference points for a term.

    Args:
        term: The term.
        condition: Under which its elements take part.
        dtype: The type in which it is summed.
        view: How the sweep sees expressions.
        signs: Known signs.
        is_plain_mean: Whether a shift is one from the mean, without weights, of what is shifted.
        is_maximum: Whether it is one from the maximum of what is shifted.
    """
    build = view.build
    shown = canonical([condition, *term.selects], build, view.pool)
    where = canonical([condition, *term.selects, *term.chosen], build, view.pool)
    element, outer = term.element, term.outer
    if element is not None and not view.varies(element) and not term.mixed:
        first, last = term.factors[: term.inside], term.factors[term.inside :]
        first = (*first, Factor("mul", element)) if term.chosen else first
        last = last if term.chosen else (*last, Factor("mul", element))
        term = replace(term, element=None, factors=(*first, *last), inside=len(first))
        element = None
    if outer is not None and not view.varies(outer):
        term = replace(term, outer=None, factors=(*term.factors, Factor("mul", outer)))
        outer = None
    maximum, times = None, 1
    if term.exponential is not None:
        exponent, _, times = _root(term.exponential)
        maximum = Maximum(term.exponential.base, build.convert(exponent, dtype), where, dtype)
    rotations = tuple((turn.op, turn.element) for turn in term.rotations)
    weight = Phi(element, maximum, (), (), where, dtype, times=times)
    powers: dict[Centre, int] = {}
    centres = []
    for shift in term.shifts:
        own = own_weight(shift, weight, view)
        if weight.element is not None and not signs.nonnegative(weight.element):
            own = own and not is_plain_mean(shift)
        centre = _centre(shift, weight if own else _unweighted(weight), dtype, view, signs)
        # All distances have one sign at the maximum, so that their sum needs no better centre.
        sided = shift.power == 1 and element is None
        is_exponent = maximum is not None and _is_exponent(shift, term, view)
        if maximum is not None and is_exponent and (sided or is_maximum(shift)):
            centre = Centre(maximum.element, None, dtype, maximum)
        centres.append(centre)
        powers[centre] = powers.get(centre, 0) + shift.power
    top = Phi(element, maximum, _ordered(powers), _turns(rotations), where, dtype, times=times)
    if maximum is not None:
        top = replace(top, parts=_sides(term.parts, maximum.element, build))
    if outer is not None:
        choice = canonical(term.chosen, build, view.pool)
        top = replace(top, condition=shown, choice=choice, outer=outer)
    return CarriedTerm(term, top, tuple(centres), shown, where)


def _root(exponential: Exponential) -> tuple[Expr, Expr, int]:
    """Return e, u and n with the exponential of e - u, n times as a factor: a power, as of p * p.

    So that a weight and its powers have one reference point, and one exponential an element.
    """
    element, times = _repeated(exponential.element)
    context, others = _repeated(exponential.context)
    if times == others:
        return element, context, times
    return exponential.element, exponential.context, 1


def _repeated(expr: Expr) -> tuple[Expr, int]:
    """Return x and n for a sum x + x + ... of n parts."""
    match expr:
        case Apply("add", (left, right)):
            (a, i), (b, j) = _repeated(left), _repeated(right)
            if a == b:
                return a, i + j
    return expr, 1


def _ordered(powers: Mapping[Centre, int]) -> tuple[tuple[Centre, int], ...]:
    """Return the powers in an order that does not depend on who wrote them first."""
    return tuple(sorted(powers.items(), key=lambda pair: to_text(pair[0].element)))


def _turns(rotations: Iterable[Turn]) -> tuple[Turn, ...]:
    return tuple(sorted(rotations, key=lambda turn: (to_text(turn[1]), turn[0])))


def _centre(shift: Shift, weight: Phi, dtype: DType, view: View, signs: Signs) -> Centre:
    """Return the running mean around which a shifted factor is kept.

    The mean is the weighted one, by the weights' magnitudes: no other point c makes the sum of
    |w| (y - c)^2 smaller, and |w| (c - u)^2 adds up to less than |w| (y - u)^2, so that what is
    summed at c and moved to u stays within what the terms at u come to, whatever u is. A weight
    with axes of its own has no part in the mean, nor has one of unknown sign where u is the mean
    without weights, which is at hand.
    """
    if dtype.kind != "float":
        return Centre(shift.element, None, dtype)
    element = view.build.convert(shift.element, dtype)
    if signs.of(shift.context) is Sign.ZERO:
        # The rest of a mean that was subtracted already: the element lies about the origin.
        return Centre(element, None, dtype)
    if weight.element is not None and not signs.nonnegative(weight.element):
        size = view.pool.intern(view.build.apply("abs", weight.element))
        weight = replace(weight, element=size)
    return Centre(element, weight, dtype)


def _is_exponent(shift: Shift, term: Term, view: View) -> bool:
    exponential = term.exponential
    return exponential is not None and view.pool.intern(shift.element) is exponential.element


def _unweighted(weight: Phi) -> Phi:
    return replace(weight, element=None, maximum=None, times=1)


def own_weight(shift: Shift, weight: Phi, view: View) -> bool:
    """Return whether the running mean of a shift takes the weight into account."""
    own = [*shift.element.type.axes, *shift.context.type.axes]
    if weight.condition is not None:
        own += weight.condition.type.axes
    others = frozenset[str]().union(*(part.type.axes for part in _parts(weight)))
    return others <= frozenset(own).union(view.axes)


def _parts(phi: Phi) -> list[Expr]:
    """Return the expressions that a phi is made of."""
    own = (phi.element, phi.condition, phi.choice, phi.outer)
    parts = [part for part in own if part is not None]
    if phi.maximum is not None:
        parts.append(phi.maximum.element)
        if phi.maximum.condition is not None:
            parts.append(phi.maximum.condition)
    for centre, _ in phi.centres:
        parts.append(centre.element)
        if centre.weight is not None:
            parts.extend(_parts(centre.weight))
    parts.extend(y for _, y in phi.rotations)
    return parts


def axes_of(phi: Phi, build: Builder) -> tuple[str, ...]:
    """Return the axes that a phi varies with, the swept ones included."""
    return build.union(part.type.axes for part in _parts(phi))


def _sides(parts: Sequence[Expr], exponent: Expr, build: Builder) -> tuple[Expr, ...]:
    """Return factors as they multiply an exponential, one after another.

    From the first on that has axes of its own they are one side of a matrix product.
    """
    own = [not set(part.type.axes) <= set(exponent.type.axes) for part in parts]
    if True not in own:
        return tuple(parts)
    first = own.index(True)
    return (*parts[:first], reduce(build.mul, parts[first:]))


def value(phi: Phi, at: Point, build: Builder) -> Expr:
    """Return phi(x, c) with the reference points c as `at` says."""
    factors: list[Expr] = []
    if phi.maximum is not None:
        exponent = build.sub(phi.maximum.element, at(phi.maximum))
        factors += [build.apply(phi.maximum.base, exponent)] * phi.times
    if phi.element is not None:
        factors.extend(phi.parts or (phi.element,))
    for centre, power in phi.centres:
        distance = centre.element
        if centre.moves:
            distance = build.sub(distance, at(centre))
        factors.append(_power(distance, power, build))
    factors.extend(build.apply(op, y) for op, y in phi.rotations)
    result = factors[0] if factors else build.convert(1, phi.dtype)
    for factor in factors[1:]:
        result = build.mul(result, factor)
    if phi.choice is not None and phi.outer is not None:
        result = build.mul(build.where(phi.choice, result, 0.0), phi.outer)
    return build.convert(result, phi.dtype)


def _power(base: Expr, power: int, build: Builder) -> Expr:
    result = base
    for _ in range(power - 1):
        result = build.mul(result, base)
    return result


def move(phi: Phi, decay: Point, step: Point, sums: Sums, build: Builder) -> Expr:
    """Return the sum of phi at new reference points from sums at old ones.

    Args:
        phi: What is summed.
        decay: exp(c - c') for a maximum.
        step: c - c' for a centre.
        sums: The sums at the old reference points.
        build: Typed constructors.
    """
    steps = [(centre, power, step) for centre, power in phi.centres if centre.moves]
    fixed = tuple((centre, power) for centre, power in phi.centres if not centre.moves)
    base = replace(phi, centres=fixed)
    moved = _expand(base, [(c, k, s(c)) for c, k, s in steps], sums, build)
    if phi.maximum is not None:
        moved = build.mul(moved, _power(decay(phi.maximum), phi.times, build))
    return moved


def _expand(phi: Phi, shifts: list[tuple[Centre, int, Expr]], sums: Sums, build: Builder) -> Expr:
    """Return the sum of phi times all (d + (y - c))^k of `shifts`, by Horner's rule."""
    if not shifts:
        return build.convert(sums(phi), phi.dtype)
    (centre, power, distance), *rest = shifts
    total: Expr | None = None
    for i in range(power + 1):
        # Coefficient of (y - c)^i, times what is left of the powers of d.
        part = _expand(_raised(phi, centre, i), rest, sums, build)
        if comb(power, i) > 1:
            part = build.mul(comb(power, i), part)
        total = part if total is None else build.add(build.mul(total, distance), part)
    assert total is not None
    return total


def _raised(phi: Phi, centre: Centre, power: int) -> Phi:
    """Return phi with `power` more of (y - c); the order of centres is kept canonical."""
    if power == 0:
        return phi
    powers = dict(phi.centres)
    powers[centre] = powers.get(centre, 0) + power
    return replace(phi, centres=_ordered(powers))


Distance = Callable[[Reference, Expr], Expr]
"""c - u for a reference point and a context, as exactly as it can be had."""


def finish(
    carried: CarriedTerm,
    distance: Distance,
    sums: Sums,
    build: Builder,
    *,
    seen: Callable[[Expr], Expr] = lambda inner: inner,
) -> Expr:
    """Return the term's sum at its own contexts, from sums at reference points.

    Args:
        carried: The term.
        distance: How far reference points are from contexts.
        sums: The sums at the reference points.
        build: Typed constructors.
        seen: Says what the choice inside the term comes to where it never chose.
    """
    term = carried.term
    base = replace(carried.top, centres=(), rotations=())
    shifts = [
        (centre, shift.power, distance(centre, shift.context))
        for shift, centre in zip(term.shifts, carried.centres, strict=True)
    ]
    result = _turned(base, list(term.rotations), shifts, sums, build)
    if term.exponential is not None and carried.top.maximum is not None:
        _, context, times = _root(term.exponential)
        exponent = distance(carried.top.maximum, context)
        result = build.mul(
            _power(build.apply(term.exponential.base, exponent), times, build), result
        )
    if term.number == -1:
        result = build.neg(result)
    elif term.number != 1:
        result = build.mul(term.number, result)
    for factor in term.factors[: term.inside]:
        result = apply_factor(result, factor, build)
    if term.chosen:
        result = seen(result)
    for factor in term.factors[term.inside :]:
        result = apply_factor(result, factor, build)
    return result


def _turned(
    phi: Phi,
    turns: list[Rotation],
    shifts: list[tuple[Centre, int, Expr]],
    sums: Sums,
    build: Builder,
) -> Expr:
    """Return the sum of phi times cos(y - u) or sin(y - u) for each of `turns`."""
    if not turns:
        return _expand(phi, shifts, sums, build)
    turn, *rest = turns

    def part(op: Literal["cos", "sin"]) -> Expr:
        rotations = _turns((*phi.rotations, (op, turn.element)))
        return _turned(replace(phi, rotations=rotations), rest, shifts, sums, build)

    cosine = build.mul(build.apply("cos", turn.context), part(turn.op))
    if turn.op == "cos":
        return build.add(cosine, build.mul(build.apply("sin", turn.context), part("sin")))
    return build.sub(cosine, build.mul(build.apply("sin", turn.context), part("cos")))
