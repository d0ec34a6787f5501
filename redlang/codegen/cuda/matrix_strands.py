"""Parts of a loop's work that have nothing to do with each other: each with its own states.

Two softmaxes over the same keys, one subtracted from the other after the loop, are such parts. A
warp group works on one after the other, so that only one of them has elements in registers at a
time, and the products of each run beside the element work of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from redlang.codegen.cuda.matrix_fills import Filling, Use
from redlang.codegen.cuda.matrix_outer import Outer
from redlang.codegen.cuda.matrix_pairs import Paired
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_weights import Power
from redlang.ir import walk
from redlang.ir.loops import Commit, Loop, Statement
from redlang.schedule import tidy

Element = Statement | Power
Item = Multiply | Paired | Element


@dataclass(frozen=True, slots=True)
class Strand:
    """One part: its products, and its element work as it is written."""

    work: LoopWork
    elements: tuple[Element, ...]


@dataclass(slots=True)
class LoopText:
    """What the consumer knows of a strand of a loop while it writes it."""

    statement: Loop
    work: LoopWork
    elements: tuple[Statement | Power, ...]
    filling: Filling
    uses: tuple[Use, ...]
    outers: tuple[Outer, ...] = ()
    early: bool = False
    partial: dict[str, str] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        """Return the loop's axis."""
        return self.statement.axis


def strands(work: LoopWork, elements: Sequence[Element]) -> tuple[Strand, ...]:
    """Return the parts of a loop's work, in the order of their products.

    What belongs to no product goes with the first one.

    Args:
        work: The loop's products.
        elements: Its element work as it is written.
    """
    items: list[Item] = [*work.heads, *work.paired, *_single(elements), *work.tails]
    written = frozenset[str]().union(*map(_writes, items))
    names = [(_reads(item) | _writes(item)) & written for item in items]
    groups: list[frozenset[str]] = []
    for own in names:
        joined = own.union(*(group for group in groups if group & own))
        groups = [group for group in groups if not group & own] + [joined]
    made: tuple[Item, ...] = (*work.products, *work.paired)
    multiplied = frozenset[str]().union(*map(_writes, made))
    parts = [group for group in groups if group & multiplied]
    if len(parts) < 2 or work.fetches:
        return (Strand(work, tuple(elements)),)
    order = {name: place for place, item in enumerate(items) for name in _writes(item)}
    parts.sort(key=lambda group: min(order[name] for name in group & multiplied))
    return tuple(_part(work, elements, group, parts) for group in parts)


def _part(
    work: LoopWork,
    elements: Sequence[Element],
    group: frozenset[str],
    parts: Sequence[frozenset[str]],
) -> Strand:
    others = frozenset[str]().union(*parts) - group

    def belongs(item: Item) -> bool:
        names = _reads(item) | _writes(item)
        return bool(names & group) or (group is parts[0] and not names & others)

    heads, tails = filter(belongs, work.heads), filter(belongs, work.tails)
    pairs = tuple(filter(belongs, work.paired))
    return Strand(
        LoopWork(tuple(heads), (), tuple(tails), paired=pairs),
        tuple(filter(belongs, _single(elements))),
    )


def _single(elements: Sequence[Element]) -> Iterator[Element]:
    """Yield elements of which each gives a value to one state at most."""
    for element in elements:
        if isinstance(element, Commit):
            yield from (Commit((pair,)) for pair in element.pairs)
        else:
            yield element


def _reads(item: Item) -> frozenset[str]:
    match item:
        case Multiply():
            return tidy.reads(item.contract)
        case Paired():
            return frozenset()
        case Power():
            return walk.refs(item.exponent)
        case _:
            return tidy.reads(item)


def _writes(item: Item) -> frozenset[str]:
    match item:
        case Multiply():
            return tidy.writes(item.contract)
        case Power() | Paired():
            return frozenset({item.name})
        case _:
            return tidy.writes(item)
