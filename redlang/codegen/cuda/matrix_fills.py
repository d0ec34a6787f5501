"""Where a tile's absent elements are put out of the way.

An element that takes no part must not show in any fold or product. Instead of testing it at every
use, one value is overwritten once: with -inf before `max(s * k)` and `exp(s * k - point)`, with 0
before plain sums. That is allowed where the filled value makes every use neutral, which
`neutral_value` proves case by case; a use for which it does not is tested by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from redlang.codegen.cuda.matrix_weights import LARGEST, Power
from redlang.ir import walk
from redlang.ir.loops import Compute, Contract, Fold, Statement
from redlang.ir.program import Apply, Cast, Expr, Literal, Load, Ref, Size

NEUTRAL = {"sum": 0.0, "max": -inf, "min": inf}
"""What an element must become to take no part in a reduction."""

POSITIVE = "positive"
_FINITE = "finite"
Kind = float | str | None
"""What is known of a value: exactly 0 or an infinity, its sign, that it is finite, or nothing."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Overwrite `name` with `value` where elements are absent, as soon as it is known."""

    name: str
    value: float


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
    sources: Sequence[str],
    varies: Callable[[Expr], bool],
) -> Filling:
    """Return how absent elements are kept out of `uses`.

    Args:
        elements: The element work of a loop.
        uses: The folds and products over the loop's axis.
        sources: Values that may be overwritten, in order of preference.
        varies: Whether an expression varies along the loop's axis.
    """
    conditions = list(dict.fromkeys(use.condition for use in uses))
    everything = frozenset(range(len(uses)))
    if len(conditions) != 1:
        return Filling(None, (), everything)
    best = Filling(conditions[0], (), everything)
    readers = _read_sources(elements, uses, sources)
    for value in (-inf, 0.0, inf):
        known: dict[str, Kind] = dict.fromkeys(readers, value)
        kinds = _propagated(elements, known)
        failing = {i for i, use in enumerate(uses) if not _is_neutral(use, kinds, varies)}
        fills = tuple(Fill(name, value) for name in readers)
        if len(failing) < len(best.tested):
            best = Filling(conditions[0], fills, frozenset(failing))
    return best


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


def _propagated(
    elements: Sequence[Statement | Power], known: Mapping[str, Kind]
) -> dict[str, Kind]:
    """Return what is known of every value of an absent element."""
    kinds = dict(known)
    for statement in elements:
        match statement:
            case Compute(name, value, _):
                kinds[name] = kind_of(value, kinds)
            case Power(name, exponent, _):
                kinds[name] = 0.0 if kind_of(exponent, kinds) == -inf else None
            case _:
                pass
    return kinds


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
        case Apply(op="clip") if any(isinstance(node, Load) for node in walk.nodes(expr)):
            return None
        case Apply(op=op, arguments=arguments):
            return _applied(op, [kind_of(argument, kinds) for argument in arguments])
        case _:
            return None


def _applied(op: str, kinds: list[Kind]) -> Kind:
    first = kinds[0]
    finite = (POSITIVE, _FINITE, 0.0)
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
    finite = (POSITIVE, _FINITE, 0.0)
    for one, other in ((a, b), (b, a)):
        if one in (inf, -inf) and (other in finite or other == one):
            return one
    if a == b == 0.0:
        return 0.0
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
