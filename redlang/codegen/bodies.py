"""A kernel's body before it is nested: types of values, slots of lists, and what is left out.

Three rewrites of no consequence for the result come first: values that nothing reads are dropped;
conditions and places that are made of indices alone are written out where they are read, so that
they need no memory and show where they confine a loop; a matrix product has the later of its
result's axes for columns, since that is the one along which results are adjacent in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from redlang.codegen.products import product_axes
from redlang.codegen.visible import is_of_indices
from redlang.ir import loops, walk
from redlang.ir.program import Expr, Ref
from redlang.ir.types import BOOL, I64, Type
from redlang.schedule import tidy

# A place of more nodes than this is kept: its arithmetic would cost more than memory does.
PLACE_NODES = 12
# So is a condition: tiles are left out, and loops cut, by what is written out.
CONDITION_NODES = 256

SLOT = "slot"
"""The axis of a top-k list whose type does not name one."""


def statements(body: Iterable[loops.Statement]) -> Iterator[loops.Statement]:
    """Yield all statements, nested ones included."""
    for statement in body:
        yield statement
        match statement:
            case loops.Loop(body=inner):
                yield from statements(inner)
            case loops.Branch(then=then, otherwise=otherwise):
                yield from statements((*then, *otherwise))
            case _:
                pass


def prepared(kernel: loops.Kernel, order: Sequence[str]) -> loops.Kernel:
    """Return the kernel after these rewrites; `order` is that of the program's axes."""
    body = _turned(_written_out(kernel.body), order)
    while True:
        read = frozenset[str]().union(*map(tidy.reads, body))
        kept = _keep(body, read)
        if kept == body:
            return replace(kernel, body=body)
        body = kept


def _turned(body: tuple[loops.Statement, ...], order: Sequence[str]) -> tuple[loops.Statement, ...]:
    """Return the body with the operands of products in the order of their result's axes."""
    done: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.Loop(body=inner):
                done.append(replace(statement, body=_turned(inner, order)))
            case loops.Branch(then=then, otherwise=otherwise):
                sides = _turned(then, order), _turned(otherwise, order)
                done.append(replace(statement, then=sides[0], otherwise=sides[1]))
            case loops.Contract(left=left, right=right):
                axes = product_axes(statement)
                last = max((*axes.rows, *axes.columns), key=order.index, default=None)
                turn = last in axes.rows and bool(axes.columns)
                done.append(replace(statement, left=right, right=left) if turn else statement)
            case _:
                done.append(statement)
    return tuple(done)


def _keep(body: tuple[loops.Statement, ...], read: frozenset[str]) -> tuple[loops.Statement, ...]:
    """Return the statements that write memory or a name in `read`."""
    kept: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.Loop(body=inner):
                kept.append(replace(statement, body=_keep(inner, read)))
            case loops.Branch(then=then, otherwise=otherwise):
                sides = _keep(then, read), _keep(otherwise, read)
                kept.append(replace(statement, then=sides[0], otherwise=sides[1]))
            case loops.Store():
                kept.append(statement)
            case loops.Commit(pairs=pairs):
                used = tuple(pair for pair in pairs if pair[0] in read)
                kept += [loops.Commit(used)] if used else []
            case _:
                kept += [statement] if tidy.writes(statement) & read else []
    return tuple(kept)


def _written_out(body: tuple[loops.Statement, ...]) -> tuple[loops.Statement, ...]:
    """Return the body with conditions and places of indices in place of their names."""
    writers: dict[str, int] = {}
    values: dict[str, Expr] = {}
    for statement in statements(body):
        for name in tidy.writes(statement):
            if not isinstance(statement, loops.Loop | loops.Branch):
                writers[name] = writers.get(name, 0) + 1
        if isinstance(statement, loops.Compute) and statement.type.dtype in (BOOL, I64):
            values[statement.name] = statement.value
    known: dict[str, Expr] = {}
    for name, value in values.items():
        value = walk.substitute(value, known)
        limit = CONDITION_NODES if value.type.dtype is BOOL else PLACE_NODES
        small = walk.tree_size(value) <= limit
        if writers[name] == 1 and is_of_indices(value) and small:
            known[name] = value
    return _substituted(body, known) if known else body


def _substituted(
    body: tuple[loops.Statement, ...], known: Mapping[str, Expr]
) -> tuple[loops.Statement, ...]:
    def new(expr: Expr) -> Expr:
        return walk.substitute(expr, known)

    def maybe(expr: Expr | None) -> Expr | None:
        return None if expr is None else new(expr)

    done: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.Compute() | loops.Store():
                done.append(replace(statement, value=new(statement.value)))
            case loops.Fold():
                values = tuple(map(new, statement.values))
                condition = maybe(statement.condition)
                done.append(replace(statement, values=values, condition=condition))
            case loops.Contract():
                sides = new(statement.left), new(statement.right)
                condition = maybe(statement.condition)
                done.append(replace(statement, left=sides[0], right=sides[1], condition=condition))
            case loops.Loop():
                inner = _substituted(statement.body, known)
                done.append(replace(statement, body=inner, some=maybe(statement.some)))
            case loops.Branch():
                done.append(
                    loops.Branch(
                        new(statement.condition),
                        _substituted(statement.then, known),
                        _substituted(statement.otherwise, known),
                    )
                )
            case loops.Combine() | loops.Commit():
                done.append(statement)
    return tuple(done)


@dataclass(slots=True)
class Values:
    """Types of a kernel's values, and of its top-k lists the slot axis and the number of slots."""

    types: dict[str, Type] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def values_of(kernel: loops.Kernel) -> Values:
    """Return what is known of a kernel's values; types of lists have their slot axis."""
    found = Values()
    linked: list[tuple[str, str]] = []
    lists: dict[str, int] = {}
    for statement in statements(kernel.body):
        match statement:
            case loops.Compute(name=name, type=type_) | loops.Contract(name=name, type=type_):
                found.types.setdefault(name, type_)
            case loops.Fold() | loops.Combine():
                found.types |= dict(zip(statement.names, statement.types, strict=True))
                if statement.op == "topk":
                    assert statement.k is not None
                    names = statement.names
                    if isinstance(statement, loops.Combine):
                        names = (*names, *statement.left, *statement.right)
                        linked += zip(names[:2] * 2, names[2:], strict=True)
                    lists |= dict.fromkeys(names, statement.k)
            case loops.Commit(pairs=pairs):
                linked += pairs
            case _:
                pass
    for _ in linked:
        for state, value in linked:
            for one, other in ((state, value), (value, state)):
                if one in lists:
                    lists.setdefault(other, lists[one])
    _name_slots(kernel, lists, linked, found)
    return found


def _name_slots(
    kernel: loops.Kernel, lists: Mapping[str, int], linked: list[tuple[str, str]], found: Values
) -> None:
    """Find the slot axis of each list; lists that are copied into each other share one."""
    groups = {name: frozenset({name}) for name in lists}
    for state, value in linked:
        if state in groups and value in groups:
            joined = groups[state] | groups[value]
            groups |= dict.fromkeys(joined, joined)
    named = _shown_slots(kernel, lists, found.types)
    for name, k in lists.items():
        slot = next((named[n] for n in sorted(groups[name]) if n in named), SLOT)
        found.slots[name] = slot
        found.counts[slot] = k
        type_ = found.types.get(name)
        if type_ is not None and slot not in type_.axes:
            found.types[name] = replace(type_, axes=(*type_.axes, slot))


def _shown_slots(
    kernel: loops.Kernel, lists: Mapping[str, int], types: Mapping[str, Type]
) -> dict[str, str]:
    """Return the slot axis of lists that show it: in their type, or where a `Ref` reads them."""
    found: dict[str, str] = {}
    for statement in statements(kernel.body):
        if isinstance(statement, loops.Fold) and statement.op == "topk":
            read = {a for expr in tidy.expressions(statement) for a in expr.type.axes}
            more = [a for a in statement.types[0].axes if a not in read]
            found |= dict.fromkeys(statement.names, more[-1]) if more else {}
        for expr in tidy.expressions(statement):
            for node in walk.nodes(expr):
                if isinstance(node, Ref) and node.name in lists:
                    more = [a for a in node.type.axes if a not in types[node.name].axes]
                    if more:
                        found[node.name] = more[-1]
    return found or _merged_slots(kernel)


def _merged_slots(kernel: loops.Kernel) -> dict[str, str]:
    """Return the slot axis of lists in a kernel that only merges those of others."""
    grid = {grid.axis for grid in kernel.grid}
    found: dict[str, str] = {}
    for statement in statements(kernel.body):
        if isinstance(statement, loops.Combine) and statement.op == "topk":
            more = [axis for axis in statement.types[0].axes if axis not in grid]
            found |= dict.fromkeys(statement.names, more[-1]) if more else {}
    return found
