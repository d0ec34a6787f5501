"""Inputs that break an obligation.

*Closure*: if a sum of F(x, u) could be carried in k numbers, every matrix F(x_i, u_j) would have rank
at most k. Nine elements and nine contexts whose matrix has full rank refute every k up to eight.

*Order*: if a maximum of F(x, u) could be carried, two elements would keep their order for all u. Two
elements that swap when the context changes refute it: the one that lost is needed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redlang.algebra import numbers
from redlang.algebra.numbers import SEED, Number, Sampler, UndefinedError
from redlang.algebra.operators import ANY
from redlang.algebra.prove import outermost
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.ir.printing import to_text
from redlang.ir.program import Expr, Load

CAP = 8
"""Largest rank that a state may have before its stage counts as not closed."""

ATTEMPTS = 6

Assignment = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """Values that break an obligation.

    Attributes:
        elements: For each element the values of what varies along the sweep.
        contexts: For each context the values of the carried results.
        constants: Values of everything else.
        text: The same in words.
    """

    elements: tuple[Assignment, ...]
    contexts: tuple[Assignment, ...]
    constants: Assignment
    text: str

    def __str__(self) -> str:
        return self.text


class Search:
    """Looks for witnesses about one expression, as the stages of a sweep see it."""

    def __init__(self, expr: Expr, view: View, signs: Signs) -> None:
        self.expr = expr
        self.view = view
        self.signs = signs
        chosen = outermost([expr], lambda node: isinstance(node, Load))
        self.varying = [n for n in chosen if view.varies(n) and not view.reads(n)]
        self.carried = [n for n in chosen if view.reads(n)]
        self.constant = [n for n in chosen if not view.varies(n) and not view.reads(n)]

    def rank(self, change: Callable[[Number], Number] = lambda value: value) -> Witness | None:
        """Return a matrix of full rank, nine by nine, of `change` of the expression's values."""
        for attempt in range(ATTEMPTS):
            sampler = Sampler(SEED + attempt)
            # Equal numbers in elements and contexts let comparisons for equality show.
            shared = [numbers.context().mpf(i - CAP // 2) / 2 for i in range(CAP + 1)]
            same = shared if attempt % 2 else None
            elements = self._assignments(self.varying, CAP + 1, sampler, same)
            contexts = self._assignments(self.carried, CAP + 1, sampler, same)
            constants = self._assignments(self.constant, 1, sampler, None)[0]
            try:
                matrix = [
                    [change(self._value({**constants, **x, **u})) for u in contexts]
                    for x in elements
                ]
            except UndefinedError:
                continue
            if _full_rank(matrix):
                size = CAP + 1
                shown = f"{size} elements and {size} values of what is read"
                text = (
                    f"{shown} whose matrix of {to_text(self.expr)} has full rank: "
                    f"{self._listed(self.varying, elements)}; "
                    f"{self._listed(self.carried, contexts)}"
                )
                return self._witness(elements, contexts, constants, text)
        return None

    def order(self) -> Witness | None:
        """Return two elements whose order depends on the context."""
        for attempt in range(40 * ATTEMPTS):
            sampler = Sampler(SEED + attempt)
            elements = self._assignments(self.varying, 2, sampler, None)
            contexts = self._assignments(self.carried, 2, sampler, None)
            constants = self._assignments(self.constant, 1, sampler, None)[0]
            try:
                (a, b), (c, d) = (
                    [self._value({**constants, **x, **u}) for x in elements] for u in contexts
                )
            except UndefinedError:
                continue
            if (a > b and c < d) or (a < b and c > d):
                text = (
                    f"{self._listed(self.varying, elements)}: {to_text(self.expr)} gives "
                    f"{numbers.text(a)}, {numbers.text(b)} where "
                    f"{self._listed(self.carried, contexts[:1])} and "
                    f"{numbers.text(c)}, {numbers.text(d)} where "
                    f"{self._listed(self.carried, contexts[1:])}"
                )
                return self._witness(elements, contexts, constants, text)
        return None

    def _value(self, values: dict[int, Number]) -> Number:
        value = numbers.evaluate(self.expr, numbers.fixed(values))
        return numbers.context().mpf(int(value)) if isinstance(value, bool) else value

    def _assignments(
        self,
        leaves: Sequence[Expr],
        count: int,
        sampler: Sampler,
        same: Sequence[Number] | None,
    ) -> list[dict[int, Number]]:
        found = []
        for i in range(count):
            values = {}
            for leaf in leaves:
                floating = leaf.type.dtype.kind == "float" and self.signs.of(leaf) is ANY
                drawn = sampler.draw(leaf, self.signs.of(leaf))
                values[id(leaf)] = same[i] if same is not None and floating else drawn
            found.append(values)
        return found

    def _listed(self, leaves: Sequence[Expr], assignments: Sequence[dict[int, Number]]) -> str:
        return ", ".join(
            f"{to_text(leaf)} = {' '.join(numbers.text(a[id(leaf)]) for a in assignments)}"
            for leaf in leaves
        )

    def _witness(
        self,
        elements: Sequence[dict[int, Number]],
        contexts: Sequence[dict[int, Number]],
        constants: dict[int, Number],
        text: str,
    ) -> Witness:
        def named(leaves: Sequence[Expr], values: dict[int, Number]) -> Assignment:
            return tuple((to_text(leaf), float(values[id(leaf)])) for leaf in leaves)

        return Witness(
            tuple(named(self.varying, values) for values in elements),
            tuple(named(self.carried, values) for values in contexts),
            named(self.constant, constants),
            text,
        )


def _full_rank(matrix: list[list[Number]]) -> bool:
    """Return whether elimination with full pivoting meets no pivot near 0."""
    ctx = numbers.context()
    rows = [list(row) for row in matrix]
    size = len(rows)
    first = max((abs(v) for row in rows for v in row), default=ctx.mpf(0))
    if first == 0:
        return False
    for k in range(size):
        pivot, i, j = max((abs(rows[i][j]), i, j) for i in range(k, size) for j in range(k, size))
        if pivot <= first * ctx.mpf(10) ** -45:
            return False
        rows[k], rows[i] = rows[i], rows[k]
        for row in rows:
            row[k], row[j] = row[j], row[k]
        for row in rows[k + 1 :]:
            ratio = row[k] / rows[k][k]
            for column in range(k, size):
                row[column] -= ratio * rows[k][column]
    return True
