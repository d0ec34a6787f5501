"""Searches for the best elements: few matter, so look over a block before going through it.

for block in range(first, stop, 128):
hit = whether any element of the block beats the bar      by vectors
if hit: find the best of the block, and its first place   by vectors
or insert its elements into a list                one after another
"""

from __future__ import annotations

from collections.abc import Callable

from redlang.codegen.nesting import Leaf, Node
from redlang.codegen.places import Places
from redlang.codegen.reductions import highest, identities, joined, lowest, rank, row_major_index
from redlang.ir import loops
from redlang.ir.types import BOOL

# Elements that a search looks over at once for one that matters.
SEARCH_BLOCK = 128


def write_search(
    body: list[Node],
    axis: str,
    part: tuple[str, str],
    at: Places,
    nodes: Callable[[list[Node]], None],
) -> None:
    """Write a loop over a part of an axis in which all of `body` are searches."""
    first, stop = part
    writer, fresh = at.writer, at.names.fresh
    leaves = [leaf for leaf in body if isinstance(leaf, Leaf)]
    folds = [leaf.step for leaf in leaves if isinstance(leaf.step, loops.Fold)]
    block, end, hit = (fresh(f"{axis}_{word}") for word in ("block", "end", "hit"))
    with writer.loop(f"for {block} in range({first}, {stop}, {SEARCH_BLOCK}):"):
        writer.line(f"{end} = min({block} + {SEARCH_BLOCK}, {stop})")
        bars = [_bar(fold, at) for fold in folds]
        writer.line(f"{hit} = {' or '.join(empty for _, empty in bars)}")
        with at.inside(axis, fresh(axis), block, end):
            for fold, (best, _) in zip(folds, bars, strict=True):
                writer.line(f"{hit} = logical_or({hit}, {_matters(fold, best, at)})")
        with writer.block(f"if {hit}:"):
            lists: list[Node] = [
                leaf for leaf, fold in zip(leaves, folds, strict=True) if fold.op == "topk"
            ]
            if lists:
                with at.inside(axis, fresh(axis), block, end):
                    nodes(lists)
            for fold in folds:
                if fold.op != "topk":
                    _best_of(fold, axis, (block, end), at)


def _best_of(fold: loops.Fold, axis: str, part: tuple[str, str], at: Places) -> None:
    """Write how the best of a block joins a search: its value, then the first such place."""
    first, stop = part
    line, fresh = at.writer.line, at.names.fresh
    peak, place = fresh("peak"), fresh("place")
    line(f"{peak} = {identities(fold.op, [at.tree.types[fold.names[0]].dtype])[0]}")
    with at.inside(axis, fresh(axis), first, stop):
        line(f"{peak} = {_better(fold, peak, at)}")
    line(f"{place} = {stop}")
    with at.inside(axis, fresh(axis), first, stop):
        here = f"select({_matches(fold, peak, at)}, {at.index(axis)}, {stop})"
        line(f"{place} = minimum({place}, {here})")
    at.indices[axis] = place
    _take(fold, peak, f"{place} < {stop}", at)
    del at.indices[axis]


def _bar(step: loops.Fold, to: Places) -> tuple[str, str]:
    """Return what an element must beat in a search, and whether any element would do.

    Nothing beats a NaN; the bar is then an infinity, which only another NaN seems to beat.
    """
    values, places = step.names[0], step.names[1]
    dtype = to.tree.types[values].dtype
    worst = str(step.k - 1) if step.op == "topk" and step.k is not None else None
    best = to.keep(to.read(values, worst))
    if dtype.kind == "float":
        top = lowest(dtype) if step.op == "argmin" else highest(dtype)
        best = to.keep(f"select(is_nan({best}), {top}, {best})")
    return best, f"{to.read(places, worst)} < 0"


def _matters(step: loops.Fold, best: str, to: Places) -> str:
    """Return a test that is false only for elements that do not beat the bar of a search."""
    value = to.typed(step.values[0], to.tree.types[step.names[0]].dtype)
    test = f"logical_not({value} {'>=' if step.op == 'argmin' else '<='} {best})"
    if step.condition is not None:
        test = f"logical_and({to.typed(step.condition, BOOL)}, {test})"
    return test


def _better(step: loops.Fold, best: str, to: Places) -> str:
    """Return the better of the current element of a search for one place and `best`."""
    dtype = to.tree.types[step.names[0]].dtype
    text = to.typed(step.values[0], dtype)
    if step.condition is not None:
        (identity, _) = identities(step.op, [dtype])
        text = f"select({to.typed(step.condition, BOOL)}, {text}, {identity})"
    return joined(step.op.removeprefix("arg"), best, text, dtype)


def _matches(step: loops.Fold, best: str, to: Places) -> str:
    """Return a test of whether the current element of a search is as good as its best one."""
    dtype = to.tree.types[step.names[0]].dtype
    value = to.typed(step.values[0], dtype)
    test = f"{value} == {best}"
    if dtype.kind == "float":
        # Where there is a NaN the best is one, and no number equals it.
        test = f"logical_or({test}, is_nan({value}))"
    if step.condition is not None:
        test = f"logical_and({to.typed(step.condition, BOOL)}, {test})"
    return test


def _take(step: loops.Fold, value: str, seen: str, to: Places) -> None:
    """Write how the best of several elements, at the current indices, joins a search."""
    best, place = step.names
    test = f"logical_and({seen}, {rank(step.op)}({value}, {to.read(best)}, {to.read(place)}))"
    with to.writer.block(f"if {test}:"):
        to.write(best, value)
        to.write(place, row_major_index(step.over, to))
