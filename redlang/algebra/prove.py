"""Proof of equations, twice: by algebra and by numbers.

A claim says that two expressions are equal whatever their *units* are: maximal parts that mix
nothing, and reference points. SymPy decides it as an identity of rational functions: exponentials
of sums become products of symbols, sines and cosines of sums are expanded, conditions are 0 or 1.
Before that both sides are computed at sixty digits on numbers from a seed; a difference refutes the
claim, whatever SymPy would say. What SymPy cannot settle within its budget stays undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias

import sympy as sp

from redlang.algebra import numbers
from redlang.algebra.budget import OutOfBudgetError, within
from redlang.algebra.numbers import DIGITS, SEED, Sampler, UndefinedError
from redlang.algebra.operators import Sign
from redlang.algebra.sharing import Pool
from redlang.algebra.signs import Signs
from redlang.algebra.symbols import Symbols, is_truth
from redlang.ir import walk
from redlang.ir.printing import to_text
from redlang.ir.program import Expr, Literal

SAMPLES = 4
TOLERANCE_DIGITS = 40
MAX_CONDITIONS = 5
METHOD = "identity of rational functions, exponentials and rotations as symbols (SymPy)"


@dataclass(frozen=True, slots=True)
class Claim:
    """`left == right` for all values of the units in them."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{to_text(self.left)} = {to_text(self.right)}"


@dataclass(frozen=True, slots=True)
class Proved:
    """The claim holds."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Broken:
    """The claim is wrong for these values."""

    claim: Claim
    witness: str


@dataclass(frozen=True, slots=True)
class Open:
    """Numbers agree, but no proof was found."""

    claim: Claim
    reason: str


Outcome: TypeAlias = Proved | Broken | Open


class Prover:
    """Proves claims about one stage.

    Attributes:
        is_unit: Which parts stand for themselves, whatever is inside them.
    """

    def __init__(self, pool: Pool, signs: Signs, is_unit: Callable[[Expr], bool]) -> None:
        self.pool = pool
        self.signs = signs
        self.is_unit = is_unit

    def prove_all(self, claims: Iterable[Claim]) -> Outcome | None:
        """Return the first claim that is not proved, None if all are."""
        for claim in claims:
            outcome = self.prove(claim)
            if not isinstance(outcome, Proved):
                return outcome
        return None

    def prove(self, claim: Claim) -> Outcome:
        """Decide a claim."""
        left, right = self.pool.intern(claim.left), self.pool.intern(claim.right)
        claim = Claim(left, right)
        witness = self._difference(claim)
        if witness is not None:
            return Broken(claim, witness)
        symbols = Symbols(self.pool, self.signs)

        def given(node: Expr) -> sp.Expr | None:
            return symbols.symbol(node) if self.is_unit(node) else None

        size = walk.tree_size(left) + walk.tree_size(right)
        try:
            equal = within(
                lambda: _equal(symbols.to_sympy(left, given), symbols.to_sympy(right, given)),
                size=size,
            )
        except OutOfBudgetError as error:
            return Open(claim, str(error))
        return Proved(claim) if equal else Open(claim, "SymPy does not find the two sides equal")

    def _difference(self, claim: Claim) -> str | None:
        """Return values for which the two sides differ, None if none were met."""
        sampler = Sampler(SEED)
        units = outermost((claim.left, claim.right), self.is_unit)
        checked = 0
        for _ in range(4 * SAMPLES):
            values = {id(unit): sampler.draw(unit, self.signs.of(unit)) for unit in units}
            try:
                left = numbers.evaluate(claim.left, values)
                right = numbers.evaluate(claim.right, values)
            except UndefinedError:
                continue
            if not close(left, right):
                return ", ".join(f"{to_text(u)} = {numbers.text(values[id(u)])}" for u in units) + (
                    f": {numbers.text(left)} against {numbers.text(right)}"
                )
            checked += 1
            if checked == SAMPLES:
                return None
        return None if checked else "no values for which both sides are defined"


def close(left: numbers.Number, right: numbers.Number) -> bool:
    """Return whether two numbers agree to far more digits than chance allows."""
    if isinstance(left, bool) or isinstance(right, bool):
        return bool(left == right)
    scale = max(abs(left), abs(right), 1)
    return bool(abs(left - right) <= scale * numbers.context().mpf(10) ** -TOLERANCE_DIGITS)


def outermost(exprs: Sequence[Expr], is_unit: Callable[[Expr], bool]) -> list[Expr]:
    """Return units and leaves in order of appearance, without looking inside units."""
    found: dict[int, Expr] = {}
    seen: set[int] = set()
    stack = list(reversed(exprs))
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Literal):
            continue
        if is_unit(node) or not walk.children(node):
            found[id(node)] = node
        else:
            stack.extend(reversed(walk.children(node)))
    return list(found.values())


@lru_cache(maxsize=4096)
def _equal(left: sp.Expr, right: sp.Expr) -> bool:
    """Return whether two expressions are equal as rational functions of their generators."""
    difference = left - right
    if difference == 0:
        return True
    if difference.has(sp.sin, sp.cos):
        difference = sp.expand_trig(difference)
    if difference.has(sp.log):
        difference = sp.expand_log(difference)
    truths = sorted((s for s in difference.free_symbols if is_truth(s)), key=str)
    if len(truths) > MAX_CONDITIONS:
        raise OutOfBudgetError(f"more than {MAX_CONDITIONS} conditions")
    for choice in product((0, 1), repeat=len(truths)):
        chosen = difference.subs(dict(zip(truths, choice, strict=True)))
        numerator, _ = sp.fraction(sp.together(_exponentials_apart(chosen)))
        if sp.expand(numerator) != 0:
            return False
    return True


def _exponentials_apart(expr: sp.Expr) -> sp.Expr:
    """Return `expr` with exp(a + 2 b) as A * B**2, a symbol for each different exponent."""
    generators: dict[sp.Expr, sp.Symbol] = {}
    replaced = {}
    for node in expr.atoms(sp.exp):
        factors = sp.Integer(1)
        for part in sp.Add.make_args(sp.expand(node.args[0])):
            coefficient, rest = part.as_coeff_Mul()
            if rest == 1:
                factors *= sp.exp(coefficient)
                continue
            symbol = generators.setdefault(rest, sp.Symbol(f"e{len(generators)}", positive=True))
            factors *= symbol**coefficient
        replaced[node] = factors
    return expr.xreplace(replaced)


def assumptions(
    signs: Signs, text: Callable[[Expr], str], exprs: Iterable[Expr]
) -> tuple[str, ...]:
    """Return the signs that a proof about `exprs` may use, in words."""
    words = {
        Sign.POSITIVE: "> 0",
        Sign.NEGATIVE: "< 0",
        Sign.ZERO | Sign.POSITIVE: ">= 0",
        Sign.ZERO | Sign.NEGATIVE: "<= 0",
    }
    facts = (f"{text(e)} {words[s]}" for e in exprs if (s := signs.of(e)) in words)
    return tuple(dict.fromkeys(facts))


def checked() -> tuple[int, int, int]:
    """Return seed, digits and number of the samples of the numeric check."""
    return SEED, DIGITS, SAMPLES
