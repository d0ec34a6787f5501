"""Where a tile's absent elements are put out of the way.

An element that takes no part must not show in any fold or product. Instead of testing it at every
use, one value is overwritten once: with -inf before `max(s * k)` and `exp(s * k - point)`, with 0
before plain sums. That is allowed where the filled value makes every use neutral, which
`neutral_value` proves case by case; a use for which it does not is tested by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from redlang.codegen.cuda.matrix_weights import LARGEST, Power
from redlang.ir import walk
from redlang.ir.loops import Commit, Compute, Contract, Fold, Statement
from redlang.ir.program import Apply, Cast, Expr, Literal, Load, Ref, Size

NEUTRAL = {"sum": 0.0, "max": -inf, "min": inf}
"""What an element must become to take no part in a reduction."""

POSITIVE = "positive"
_FINITE = "finite"
_FINITES = (POSITIVE, _FINITE, 0.0)
Kind = float | str | None
"""What is known of a value: exactly 0 or an infinity, its sign, that it is finite, or nothing."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Overwrite `name` with `value` where elements are absent.

    Attributes:
        name: The value.
        value: What it becomes.
        before: The place of the statement before which that happens; None: as soon as it is known.
    """

    name: str
    value: float
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """How one loop's absent elements are kept out.

    Attributes:
        condition: What all filled elements' uses have as their condition (None: all take part).
        fills: The values to overwrite.
        tested: Uses that test their elements themselves, by their place among all uses.
    """

    condition: Expr | None
    fills: tuple[Fill, ...]
    tested: frozenset[int]


Use = Fold | Contract


def filling(
    elements: Sequence[Statement | Power],
    uses: Sequence[Use],
    groups: Sequence[Sequence[str]],
    varies: Callable[[Expr], bool],
    rows: Mapping[str, Kind],
) -> Filling:
    """Return how absent elements are kept out of `uses`.

    Values may be overwritten a second time, when what was read of them is done: a weight is 0 by
    then, and its product with a finite number too.

    Args:
        elements: The element work of a loop.
        uses: The folds and products over the loop's axis.
        groups: Values that may be overwritten together, in order of preference.
        varies: Whether an expression varies along the loop's axis.
        rows: What is known of values of rows.
    """
    conditions = list(dict.fromkeys(use.condition for use in uses))
    everything = frozenset(range(len(uses)))
    if len(conditions) != 1:
        return Filling(None, (), everything)
    best = Filling(conditions[0], (), everything)
    made = {element.name for element in elements if isinstance(element, Compute | Power)}
    if conditions[0] is not None and not made.isdisjoint(walk.refs(conditions[0])):
        # A condition that reads what would be overwritten is asked of every use.
        return best
    partial: list[tuple[list[str], tuple[Fill, ...], frozenset[int]]] = []
    for sources, value in product(groups, (-inf, 0.0, inf)):
        readers = _read_sources(elements, uses, sources)
        first = tuple(Fill(name, value) for name in readers)
        failing = _failing(elements, uses, first, varies, rows)
        if len(failing) < len(best.tested):
            best = Filling(conditions[0], first, failing)
        partial.append((readers, first, failing))
    if not best.tested:
        return best
    for readers, first, failing in partial:
        # From the first use on for which that will not do, another value may.
        place = min(_place(elements, uses[i]) for i in failing)
        for other in (0.0, inf, -inf):
            fills = (*first, *(Fill(name, other, place) for name in readers))
            left = _failing(elements, uses, fills, varies, rows)
            if len(left) < len(best.tested):
                best = Filling(conditions[0], fills, left)
    return best


def _place(elements: Sequence[Statement | Power], use: Use) -> int:
    """Return the place of a use among the element work; products come after all of it."""
    return next((i for i, element in enumerate(elements) if element is use), len(elements))


def _failing(
    elements: Sequence[Statement | Power],
    uses: Sequence[Use],
    fills: Sequence[Fill],
    varies: Callable[[Expr], bool],
    rows: Mapping[str, Kind],
) -> frozenset[int]:
    """Return the uses for which absent elements are not neutral under some fills."""
    known = {fill.name: fill.value for fill in fills if fill.before is None}
    kinds: dict[str, Kind] = {**rows, **known}
    found = set()
    for place in range(len(elements) + 1):
        kinds |= {fill.name: fill.value for fill in fills if fill.before == place}
        for number, use in enumerate(uses):
            if _place(elements, use) == place and not _is_neutral(use, kinds, varies):
                found.add(number)
        if place < len(elements):
            _propagate(elements[place], kinds, known)
    return frozenset(found)


def _read_sources(
    elements: Sequence[Statement | Power], uses: Sequence[Use], sources: Sequence[str]
) -> list[str]:
    """Return the sources that are read at all."""
    read = frozenset[str]()
    for statement in (*elements, *uses):
        for expr in _values(statement):
            read |= walk.refs(expr)
    return [name for name in sources if name in read]


def _values(statement: Statement | Power) -> tuple[Expr, ...]:
    match statement:
        case Compute(value=value):
            return (value,)
        case Power(exponent=exponent):
            return (exponent,)
        case Fold(values=values):
            return values
        case Contract(left=left, right=right):
            return (left, right)
        case _:
            return ()


def _propagate(
    statement: Statement | Power, kinds: dict[str, Kind], known: Mapping[str, float]
) -> None:
    """Add what is known of a statement's value at an absent element."""
    match statement:
        case Compute(name) if name in known:
            pass
        case Compute(name, value, _):
            found = kind_of(value, kinds)
            if found is not None or name in kinds:
                kinds[name] = found
        case Power(name, exponent, _):
            kinds[name] = 0.0 if kind_of(exponent, kinds) == -inf else None
        case _:
            pass


def finite_states(body: Sequence[Statement], before: Sequence[Statement]) -> dict[str, Kind]:
    """Return the states of rows that are finite before and after every tile.

    Args:
        body: A loop's.
        before: What comes before the loop.
    """
    first = {s.name: s.value for s in before if isinstance(s, Compute)}
    moved = {state: value for s in body if isinstance(s, Commit) for state, value in s.pairs}
    states = {n for n in moved if n in first and kind_of(first[n], {}) in _FINITES}
    while True:
        kinds: dict[str, Kind] = dict.fromkeys(states, _FINITE)
        for statement in body:
            if isinstance(statement, Compute):
                kinds.setdefault(statement.name, kind_of(statement.value, kinds))
        left = {n for n in states if kinds.get(moved[n]) in _FINITES}
        if left == states:
            return dict.fromkeys(states, _FINITE)
        states = left


def _is_neutral(use: Use, kinds: Mapping[str, Kind], varies: Callable[[Expr], bool]) -> bool:
    match use:
        case Fold(op=op, values=(value,)) if op in NEUTRAL:
            return varies(value) and kind_of(value, kinds) == NEUTRAL[op]
        case Contract(left=left, right=right):
            return 0.0 in (kind_of(left, kinds), kind_of(right, kinds))
        case _:
            return False


def kind_of(expr: Expr, kinds: Mapping[str, Kind]) -> Kind:
    """Return what is known of an expression at an absent element.

    A value of rows may be NaN where it comes from the reference point of a state: then a visible
    element is NaN, and so is the row.
    """
    match expr:
        case Literal(value):
            if value == 0 or abs(value) == inf:
                return float(value)
            return POSITIVE if 0 < value <= LARGEST else _FINITE if value == value else None
        case Size():
            return POSITIVE
        case Ref(name):
            return kinds.get(name)
        case Cast(operand=operand, explicit=False):
            return kind_of(operand, kinds)
        case Apply(op="where", arguments=(Apply(op="isfinite", arguments=(x,)), y, z)) if x == y:
            return _FINITE if kind_of(z, kinds) in _FINITES else None
        case Apply(op="clip") if any(isinstance(node, Load) for node in walk.nodes(expr)):
            return None
        case Apply(op=op, arguments=arguments):
            return _applied(op, [kind_of(argument, kinds) for argument in arguments])
        case _:
            return None


def _applied(op: str, kinds: list[Kind]) -> Kind:
    first = kinds[0]
    finite = _FINITES
    match op:
        case "neg":
            return -first if isinstance(first, float) else _FINITE if first in finite else None
        case "exp" | "exp2":
            return 0.0 if first == -inf else None
        case "sqrt" | "rsqrt":
            return POSITIVE if first == POSITIVE else None
        case "clip":
            return _FINITE if kinds[1] in finite and kinds[2] in finite else None
        case "add" | "sub":
            second = kinds[1]
            if op == "sub":
                second = _applied("neg", [second])
            return _sum(first, second)
        case "mul":
            return _product(first, kinds[1])
        case "div":
            return first if kinds[1] == POSITIVE else None
        case "where":
            return kinds[1] if kinds[1] == kinds[2] else None
        case _:
            return None


def _sum(a: Kind, b: Kind) -> Kind:
    finite = _FINITES
    for one, other in ((a, b), (b, a)):
        if one in (inf, -inf) and (other in finite or other == one):
            return one
    for one, other in ((a, b), (b, a)):
        if one == 0.0 and other in finite:
            return other
    # The sum of two finite numbers may overflow.
    return None


def _product(a: Kind, b: Kind) -> Kind:
    for one, other in ((a, b), (b, a)):
        if one in (inf, -inf) and other == POSITIVE:
            return one
        if one == 0.0 and other in (POSITIVE, _FINITE, 0.0):
            return 0.0
        if one == other == POSITIVE:
            return POSITIVE
    return None
