"""Inputs that break an obligation.

*Closure*: if a sum of F(x, u) could be carried in k numbers, every matrix F(x_i, u_j) would have
rank at most k. Nine elements and nine contexts whose matrix has full rank refute every k up to
eight.

*Order*: if a maximum of F(x, u) could be carried, two elements would keep their order for all u.
Two elements that swap when the context changes refute it: the one that lost is needed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mpmath

from redlang.algebra import numbers
from redlang.algebra.numbers import SEED, Number, Sampler, Tape, UndefinedError
from redlang.algebra.operators import ANY, Sign
from redlang.algebra.prove import outermost
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.algebra.verdicts import Assignment, Witness
from redlang.ir.printing import to_text
from redlang.ir.program import Expr, Load, Size

CAP = 8
"""Largest rank that a state may have before its stage counts as not closed."""

EXACT = 1e-45
"""At sixty digits, what is 0 by algebra is below 1e-55 of the first pivot."""

ROUGH = 1e-11

ATTEMPTS = 240
"""How many pairs of elements are tried for an order that changes."""

Values = dict[int, Number]


@dataclass(frozen=True, slots=True)
class _Style:
    """How values are drawn: at random, or on a grid with contexts `offset` below the elements.

    A function that only asks on which side of a context an element lies shows its rank where the
    two interleave; one that asks for equality, where they coincide. With extents of 1 a sum is a
    mean, so that contexts spread as far as elements do. `spread` draws numbers of up to so many
    powers of two more or less, since sums, counts and elements differ in size.
    """

    count: int
    grid: bool = False
    offset: float = 0.0
    short: bool = False
    spread: int = 0


_STYLES = (
    _Style(CAP + 3),
    _Style(CAP + 1, grid=True, short=True),
    _Style(CAP + 1, grid=True, offset=0.25, short=True),
    _Style(36, short=True, spread=3),
    _Style(36, spread=3),
)


class Search:
    """Looks for witnesses about one expression, as the stages of a sweep see it."""

    def __init__(self, expr: Expr, view: View, signs: Signs) -> None:
        self.expr = expr
        self.view = view
        self.signs = signs
        chosen = outermost([expr], lambda node: isinstance(node, Load))
        # What is known to be 0, as the rest of a mean, is no input.
        self.zeros = {id(n): numbers.context().mpf(0) for n in chosen if signs.of(n) is Sign.ZERO}
        chosen = [n for n in chosen if id(n) not in self.zeros]
        self.tape = Tape(expr, [*self.zeros, *map(id, chosen)])
        self.varying = [n for n in chosen if view.varies(n) and not view.reads(n)]
        self.carried = [n for n in chosen if view.reads(n)]
        self.constant = [n for n in chosen if not view.varies(n) and not view.reads(n)]

    def rank(self) -> Witness | None:
        """Return nine elements and nine contexts whose matrix of values has full rank."""
        for attempt, style in enumerate(_STYLES):
            sampler = Sampler(SEED + attempt, style.spread)
            elements, contexts, constants = self._drawn(style, sampler)
            if style.count > 2 * CAP:
                # Doubles choose rows and columns quickly; sixty digits decide.
                elements, contexts = self._chosen(elements, contexts, constants, mpmath.fp, ROUGH)
            ctx = numbers.context()
            elements, contexts = self._chosen(elements, contexts, constants, ctx, EXACT)
            if elements:
                text = (
                    f"{CAP + 1} elements and {CAP + 1} values of what is read, for which the "
                    f"matrix of {self.view.text(self.expr)} has full rank: "
                    f"{self._listed(self.varying, elements)}; "
                    f"{self._listed(self.carried, contexts)}"
                )
                return self._witness(elements, contexts, constants, text)
        return None

    def _chosen(
        self,
        elements: list[Values],
        contexts: list[Values],
        constants: Values,
        ctx: numbers.Context,
        tolerance: float,
    ) -> tuple[list[Values], list[Values]]:
        """Return nine elements and contexts whose matrix has full rank; nothing if none do."""
        inputs = [{**constants, **x} for x in elements]
        matrix = self._matrix(inputs, contexts, ctx)
        places = matrix and independent(matrix, CAP + 1, tolerance)
        if not places:
            return [], []
        return [elements[i] for i in places[0]], [contexts[i] for i in places[1]]

    def _matrix(
        self, inputs: Sequence[Values], contexts: Sequence[Values], ctx: numbers.Context
    ) -> list[list[Number]] | None:
        """Return the expression's values, None if one is undefined."""
        try:
            return [[self._value({**x, **u}, ctx) for u in contexts] for x in inputs]
        except UndefinedError:
            return None

    def _drawn(self, style: _Style, sampler: Sampler) -> tuple[list[Values], list[Values], Values]:
        """Return values for elements, contexts and constants."""
        half = style.count // 2
        grid = [numbers.context().mpf(i - half) / 2 for i in range(style.count)]
        lower = [value - style.offset for value in grid]
        elements = self._assignments(
            self.varying, style.count, sampler, grid if style.grid else None
        )
        contexts = self._assignments(
            self.carried, style.count, sampler, lower if style.grid else None
        )
        constants = self._assignments(self.constant, 1, sampler, None)[0]
        if style.short:
            sizes = {id(n) for n in self.constant if isinstance(n, Size)}
            constants.update(dict.fromkeys(sizes, numbers.context().mpf(1)))
        return elements, contexts, constants

    def order(self) -> Witness | None:
        """Return two elements whose order depends on the context."""
        for attempt in range(ATTEMPTS):
            sampler = Sampler(SEED + attempt, 3 * (attempt % 2))
            elements = self._assignments(self.varying, 2, sampler, None)
            contexts = self._assignments(self.carried, 2, sampler, None)
            constants = self._assignments(self.constant, 1, sampler, None)[0]
            try:
                (a, b), (c, d) = (
                    [self._value({**constants, **x, **u}, numbers.context()) for x in elements]
                    for u in contexts
                )
            except UndefinedError:
                continue
            if (a > b and c < d) or (a < b and c > d):
                text = (
                    f"{self._listed(self.varying, elements)}: {self.view.text(self.expr)} gives "
                    f"{numbers.text(a)}, {numbers.text(b)} where "
                    f"{self._listed(self.carried, contexts[:1])} and "
                    f"{numbers.text(c)}, {numbers.text(d)} where "
                    f"{self._listed(self.carried, contexts[1:])}"
                )
                return self._witness(elements, contexts, constants, text)
        return None

    def _value(self, values: Values, ctx: numbers.Context) -> Number:
        values = {**self.zeros, **values}
        if ctx is mpmath.fp:
            values = {key: _rough(value) for key, value in values.items()}
        value = self.tape.run(values, ctx)
        return ctx.mpf(int(value)) if isinstance(value, bool) else value

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
                if leaf.type.dtype.kind == "bool":
                    # Elements that take no part show nothing; most should.
                    drawn = i % 4 > 0
                values[id(leaf)] = same[i] if same is not None and floating else drawn
            found.append(values)
        return found

    def _listed(self, leaves: Sequence[Expr], assignments: Sequence[dict[int, Number]]) -> str:
        return ", ".join(
            f"{self.view.text(leaf)} = {' '.join(numbers.text(a[id(leaf)]) for a in assignments)}"
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


def _rough(value: Number) -> Number:
    return value if isinstance(value, bool) else float(value)


def independent(
    matrix: list[list[Number]], size: int, tolerance: float
) -> tuple[list[int], list[int]] | None:
    """Return rows and columns of a square part of full rank, found by full pivoting.

    Args:
        matrix: At least `size` by `size`.
        size: The rank that is wanted.
        tolerance: What counts as 0 beside the first pivot.
    """
    work = [list(row) for row in matrix]
    first = max(abs(value) for row in work for value in row)
    rows, columns = list(range(len(work))), list(range(len(work[0])))
    for k in range(size):
        pivot, i, j = max(
            (abs(work[i][j]), i, j) for i in range(k, len(rows)) for j in range(k, len(columns))
        )
        if first == 0 or pivot <= first * tolerance:
            return None
        work[k], work[i] = work[i], work[k]
        rows[k], rows[i] = rows[i], rows[k]
        for row in work:
            row[k], row[j] = row[j], row[k]
        columns[k], columns[j] = columns[j], columns[k]
        for row in work[k + 1 :]:
            ratio = row[k] / work[k][k]
            if ratio:
                row[k:] = [a - ratio * b for a, b in zip(row[k:], work[k][k:], strict=True)]
    return rows[:size], columns[:size]
