"""A user's monoid over a range: neighbours are combined in pairs until one state is left.

Taken one after another, each combination waits for the last. In pairs none waits for another and a
vector of them goes at once; the order of elements stays, since a monoid need not commute.
"""

from __future__ import annotations

from redlang.codegen.places import Places
from redlang.codegen.reductions import combined, lifted
from redlang.codegen.scalars import converted
from redlang.ir import loops

# States that are kept at once: a few parts of them fit the first cache.
PAIR_BLOCK = 512


def write_pairs(fold: loops.Fold, axis: str, part: tuple[str, str], at: Places) -> None:
    """Write a loop over a part of an axis that reduces by a monoid without a condition."""
    first, stop = part
    writer, fresh = at.writer, at.names.fresh
    writer.origin(fold.values[0].span)
    now, then = (_states(fold, side, at) for side in ("now", "then"))
    block, count = fresh(f"{axis}_block"), fresh(f"{axis}_count")
    with writer.loop(f"for {block} in range({first}, {stop}, {PAIR_BLOCK}):"):
        writer.line(f"{count} = min({PAIR_BLOCK}, {stop} - {block})")
        with at.inside(axis, fresh(axis), block, f"{block} + {count}"):
            parts, kinds = lifted(fold, at)
            here = f"{at.index(axis)} - {block}"
            for state, text, kind, type_ in zip(now, parts, kinds, fold.types, strict=True):
                writer.line(f"store({state}, {here}, {converted(text, kind, type_.dtype)})")
        with writer.block(f"while {count} > 1:"):
            _halve(fold, count, (now, then), at)
        states = [at.keep(at.read(name)) for name in fold.names], _loaded(now, "0", at)
        for name, text in zip(fold.names, combined(fold, states, at), strict=True):
            at.write(name, text)


def _states(fold: loops.Fold, side: str, at: Places) -> list[str]:
    """Return buffers for the parts of the states of one block."""
    parts = zip(fold.names, fold.types, strict=True)
    return [at.reserve(f"{name}.{side}", type_.dtype, PAIR_BLOCK) for name, type_ in parts]


def _loaded(states: list[str], place: str, at: Places) -> list[str]:
    return [at.keep(f"load({state}, {place})") for state in states]


def _halve(fold: loops.Fold, count: str, sides: tuple[list[str], list[str]], at: Places) -> None:
    """Write how `count` states become half as many; a last one without a neighbour stays."""
    writer, (now, then) = at.writer, sides
    half, pair = at.names.fresh("half"), at.names.fresh("pair")
    writer.line(f"{half} = {count} >> 1")
    with writer.block(f"for {pair} in range(0, {half}):"):
        states = _loaded(now, f"2 * {pair}", at), _loaded(now, f"2 * {pair} + 1", at)
        for state, text in zip(then, combined(fold, states, at), strict=True):
            writer.line(f"store({state}, {pair}, {text})")
    with writer.block(f"if {count} & 1:"):
        for state, last in zip(then, now, strict=True):
            writer.line(f"store({state}, {half}, load({last}, {count} - 1))")
    writer.line(f"{count} -= {half}")
    with writer.block(f"for {pair} in range(0, {count}):"):
        for state, source in zip(now, then, strict=True):
            writer.line(f"store({state}, {pair}, load({source}, {pair}))")
