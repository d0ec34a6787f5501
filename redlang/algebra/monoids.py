"""Laws of user's monoids: combine is associative, and init is neutral.

A monoid whose laws do not hold gives results that depend on tiles and segments, so it is refused
with the states that break it. The laws are checked by SymPy for all states, and by numbers for
states that lifting and combining elements can reach; a law that SymPy leaves open, because it only
holds for reachable states, is believed on the numbers, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isinf

from redlang.algebra import numbers
from redlang.algebra.numbers import SEED, Number, Sampler, UndefinedError
from redlang.algebra.prove import Claim, Proved, Prover, close
from redlang.algebra.sharing import Pool
from redlang.algebra.signs import Signs
from redlang.ir import walk
from redlang.ir.program import Apply, Expr, Literal, Monoid, Ref
from redlang.ir.types import Type

SAMPLES = 12

State = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Laws:
    """What is known of a monoid's laws.

    Attributes:
        identities: The laws as equations.
        proved: Whether SymPy proved all of them.
        broken: The law that fails and states for which it does, or None.
    """

    identities: tuple[str, ...]
    proved: bool
    broken: tuple[str, str] | None = None


@lru_cache(maxsize=128)
def laws(monoid: Monoid) -> Laws:
    """Check the laws of a monoid."""
    texts = (
        "combine(combine(a, b), c) = combine(a, combine(b, c))",
        "combine(init, a) = a",
        "combine(a, init) = a",
    )
    broken = _broken(monoid, texts)
    if broken is not None:
        return Laws(texts, False, broken)
    return Laws(texts, _proved(monoid))


def _proved(monoid: Monoid) -> bool:
    pool = Pool()
    prover = Prover(pool, Signs(), lambda node: isinstance(node, Ref))
    a, b, c = (
        tuple(Ref(f"{side}.{i}", Type(part.type.dtype)) for i, part in enumerate(monoid.init))
        for side in "abc"
    )
    combine = _combiner(monoid)
    pairs = [
        (combine(combine(a, b), c), combine(a, combine(b, c))),
        (combine(monoid.init, a), a),
        (combine(a, monoid.init), a),
    ]
    claims = [
        Claim(_settled(left), _settled(right))
        for lefts, rights in pairs
        for left, right in zip(lefts, rights, strict=True)
    ]
    return all(isinstance(prover.prove(claim), Proved) for claim in claims)


def _combiner(monoid: Monoid) -> Callable[[Sequence[Expr], Sequence[Expr]], State]:
    def combine(left: Sequence[Expr], right: Sequence[Expr]) -> State:
        values = {f"a.{i}": part for i, part in enumerate(left)}
        values |= {f"b.{i}": part for i, part in enumerate(right)}
        return tuple(walk.substitute(part, values) for part in monoid.combine)

    return combine


def _settled(expr: Expr) -> Expr:
    """Return `expr` with an infinite identity taken to its limit: max(-inf, a) = a."""

    def rule(node: Expr) -> Expr:
        match node:
            case Apply("maximum" | "minimum" as op, (left, right)):
                neutral = float("-inf") if op == "maximum" else float("inf")
                for one, other in ((left, right), (right, left)):
                    if isinstance(one, Literal) and one.value == neutral:
                        return other
            case Apply("sub" | "add", (Literal(value) as left, _)) if isinf(value):
                return left
            case Apply("exp" | "exp2", (Literal(value) as left,)) if value == float("-inf"):
                return Literal(0.0, left.type)
            case _:
                pass
        return node

    return walk.rewrite(expr, rule)


def _broken(monoid: Monoid, texts: Sequence[str]) -> tuple[str, str] | None:
    """Return the law that numbers break and the states for which they do."""
    sampler = Sampler(SEED)
    for _ in range(SAMPLES):
        try:
            a, b, c = (_reachable(monoid, sampler) for _ in range(3))
            empty = _values(monoid.init, {})
            sides = [
                (
                    _joined(monoid, _joined(monoid, a, b), c),
                    _joined(monoid, a, _joined(monoid, b, c)),
                ),
                (_joined(monoid, empty, a), a),
                (_joined(monoid, a, empty), a),
            ]
        except UndefinedError:
            continue
        for text, (left, right) in zip(texts, sides, strict=True):
            if not all(map(_same, left, right)):
                states = f"a = {_shown(a)}, b = {_shown(b)}, c = {_shown(c)}"
                return text, f"{states} gives {_shown(left)} against {_shown(right)}"
    return None


def _reachable(monoid: Monoid, sampler: Sampler) -> tuple[Number, ...]:
    """Return a state made of one or two lifted elements."""
    states = []
    for _ in range(2):
        leaves = {
            node.name: sampler.draw(node)
            for part in monoid.lift
            for node in walk.nodes(part)
            if isinstance(node, Ref)
        }
        states.append(_values(monoid.lift, leaves))
    first, second = states
    return _joined(monoid, first, second) if sampler.coin() else first


def _joined(monoid: Monoid, left: Sequence[Number], right: Sequence[Number]) -> tuple[Number, ...]:
    values = {f"a.{i}": value for i, value in enumerate(left)}
    values |= {f"b.{i}": value for i, value in enumerate(right)}
    return _values(monoid.combine, values)


def _values(parts: Sequence[Expr], values: dict[str, Number]) -> tuple[Number, ...]:
    given = {
        id(node): values[node.name]
        for part in parts
        for node in walk.nodes(part)
        if isinstance(node, Ref)
    }
    return tuple(numbers.evaluate(part, given) for part in parts)


def _same(left: Number, right: Number) -> bool:
    return bool(left == right) or close(left, right)


def _shown(state: Sequence[Number]) -> str:
    return f"({', '.join(map(numbers.text, state))})"
