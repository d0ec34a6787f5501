"""Reference points as an `Emitter` has them, and what sums about them have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from redlang.algebra.terms import factors_of
from redlang.algebra.transport import Centre, Phi, Reference
from redlang.ir.program import Expr, Ref


@dataclass(frozen=True, slots=True)
class Point:
    """A reference point in the places where it is read.

    Attributes:
        kept: Its value in the state.
        renewed: Its value for the tile at hand.
        change: In an update, exp(c - c') for a maximum and c - c' for a centre.
        joined: Its value after a merge.
        change_left, change_right: As `change`, for the two sides of a merge.
    """

    kept: Expr
    renewed: Expr
    change: Expr
    joined: Expr
    change_left: Expr
    change_right: Expr


def of_side(side: str, ref: Expr) -> Ref:
    """Return a state of one side of a merge, `a` or `b`."""
    assert isinstance(ref, Ref)
    return Ref(f"{side}.{ref.name}", ref.type)


def first_powers(centre: Centre) -> Phi:
    """Return the phi w (y - c) that the running mean of a centre keeps near 0."""
    assert centre.weight is not None
    return replace(centre.weight, centres=((centre, 1),))


def weighted_key(centre: Centre) -> tuple[object, ...]:
    """Return the key of w y, a sum of which need not be kept beside the centre."""
    assert centre.weight is not None
    return key_of(centre.weight, *factors_of(centre.element))


def key_of(phi: Phi, *more: Expr) -> tuple[object, ...]:
    """Return what phi without centres have in common if their factors only differ in order."""
    factors = sorted(map(id, (*factors_of(phi.element), *more)))
    rest = (phi.times, id(phi.choice), id(phi.outer))
    return (tuple(factors), phi.maximum, phi.rotations, id(phi.condition), phi.dtype, rest)


def moves(points: Callable[[Reference], Point], which: str) -> Callable[[Reference], Expr]:
    """Return what gives one of the changes of each reference point."""

    def change(reference: Reference) -> Expr:
        move: Expr = getattr(points(reference), which)
        return move

    return change
