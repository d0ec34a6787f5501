"""A kernel of the loop IR as a tree of loops over tiles, loops over elements, steps and products.

Here matrix products get operands that lie in memory, and grid axes that nothing wants whole are taken
one index at a time: every value of a unit then needs memory for one index only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from redlang.codegen.nesting import (
    Facts,
    For,
    If,
    Multiply,
    Node,
    Tiles,
    dependences,
    innermost,
    loop_order,
    nest,
)
from redlang.codegen.steps import Assign, Step, step_reads, step_writes
from redlang.ir import loops, walk
from redlang.ir.program import Apply, ArrayParam, Expr, Index, Literal, Load, Ref
from redlang.ir.types import BOOL, DType, Type
from redlang.schedule import tidy

SLOT = "slot"
"""The axis of a top-k list whose type does not name one."""


@dataclass(slots=True)
class Tree:
    """A kernel, nested.

    Attributes:
        root: The body of a unit.
        types: The type of every value; top-k lists have their slot axis.
        slots: The slot axis of top-k values.
        slot_counts: Slots of each slot axis.
        layout: The order of axes in which a value lies in memory, outermost first.
        fixed: Grid axes with one index a unit.
        facts: What nesting went by.
    """

    root: list[Node]
    types: dict[str, Type]
    slots: dict[str, str]
    slot_counts: dict[str, int]
    layout: dict[str, tuple[str, ...]]
    fixed: frozenset[str]
    facts: Facts


def build_tree(
    program_loops: loops.Loops, kernel: loops.Kernel, unit: dict[str, str | None]
) -> Tree:
    """Return the tree of one kernel, for arrays with these unit strides."""
    return _Builder(program_loops, kernel, unit).build()


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


class _Straight:
    """Steps of a straight line, cut by matrix products.

    A step moves in front of products that it has nothing to do with, to share loops with the steps
    there.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a new line."""
        self._steps: list[list[Step]] = [[]]
        self._products: list[tuple[loops.Contract, Node]] = []

    def add(self, step: Step) -> None:
        """Put a step into the earliest part that its dependences allow."""
        place = len(self._steps) - 1
        while place > 0 and not any(dependences(s, step) for s in self._steps[place]):
            contract, _ = self._products[place - 1]
            reads = frozenset[str]().union(*map(walk.refs, tidy.expressions(contract)))
            used = {contract.name}
            if (step_reads(step) | step_writes(step)) & used or step_writes(step) & reads:
                break
            place -= 1
        self._steps[place].append(step)

    def close(self, contract: loops.Contract, product: Node) -> None:
        """Put a product behind all steps so far."""
        self._products.append((contract, product))
        self._steps.append([])

    def parts(self) -> Iterator[tuple[list[Step], Node | None]]:
        """Yield each part's steps with the product behind them."""
        products = [*(product for _, product in self._products), None]
        yield from zip(self._steps, products, strict=True)


@dataclass(slots=True)
class _Values:
    """Types and slots of a kernel's values."""

    types: dict[str, Type] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def _values(kernel: loops.Kernel) -> _Values:
    found = _Values()
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
    named = _slot_axes(kernel, lists, found.types)
    joins = [s for s in statements(kernel.body) if isinstance(s, loops.Combine) and s.op == "topk"]
    for join in joins:
        linked += zip(join.names * 2, (*join.left, *join.right), strict=True)
    groups = _linked_groups(lists, linked)
    for name, k in lists.items():
        # Lists that are copied into each other count their slots by one axis.
        slot = next((named[n] for n in groups[name] if n in named), SLOT)
        found.slots[name] = slot
        found.counts[slot] = k
        type_ = found.types.get(name)
        if type_ is not None and slot not in type_.axes:
            found.types[name] = replace(type_, axes=(*type_.axes, slot))
    return found


def _slot_axes(
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
    return found


def _linked_groups(
    lists: Mapping[str, int], pairs: Iterable[tuple[str, str]]
) -> dict[str, frozenset[str]]:
    """Return, for each list, all lists that a chain of copies joins it with."""
    groups = {name: frozenset({name}) for name in lists}
    for state, value in pairs:
        if state in groups and value in groups:
            joined = groups[state] | groups[value]
            groups |= dict.fromkeys(joined, joined)
    return groups


class _Builder:
    def __init__(
        self, program_loops: loops.Loops, kernel: loops.Kernel, unit: dict[str, str | None]
    ) -> None:
        self.kernel = replace(kernel, body=without_unread(kernel.body))
        kernel = self.kernel
        program = program_loops.program
        self.arrays: dict[str, DType] = {
            p.name: p.dtype for p in program.params if isinstance(p, ArrayParam)
        }
        values = _values(kernel)
        self.types, self.slots, self.counts = values.types, values.slots, values.counts
        axes = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
        axes |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
        axes |= {space.name: space.axes for space in program_loops.workspaces}
        axes |= {name: type_.axes for name, type_ in self.types.items()}
        self.axes = axes
        self.layout: dict[str, tuple[str, ...]] = {}
        votes = {}
        for statement in statements(kernel.body):
            if isinstance(statement, loops.Contract) and statement.type.dtype.kind == "float":
                groups = contract_axes(statement)
                self.layout[statement.name] = (*groups.batch, *groups.rows, *groups.columns)
                if groups.columns:
                    votes[statement.name] = groups.columns[-1]
        order = tuple(axis.name for axis in program.axes)
        self.facts = Facts(order, self.slots, axes, unit, votes)

    def build(self) -> Tree:
        """Return the finished tree."""
        single = {g.axis for g in self.kernel.grid if g.tile == 1}
        if self.kernel.segment is not None:
            single.add(self.kernel.segment.index)
        peeled = self._peeled(frozenset(single))
        root = self._body(self.kernel.body, frozenset(single) | frozenset(peeled))
        for axis in reversed(peeled):
            root = [For(axis, root)]
        return Tree(
            root,
            *(self.types, self.slots, self.counts, self.layout, frozenset(single), self.facts),
        )

    def _peeled(self, single: frozenset[str]) -> list[str]:
        """Return the grid axes that no step wants innermost and no product has as rows or columns."""
        wanted: set[str] = set()
        for statement in statements(self.kernel.body):
            if isinstance(statement, loops.Contract):
                groups = contract_axes(statement)
                wanted |= {*groups.rows, *groups.columns}
            for step in self._steps(statement):
                votes = innermost(step, self.facts)
                free = [axis for axis in votes if axis not in single]
                if free:
                    wanted.add(max(free, key=lambda axis: votes[axis]))
        return [g.axis for g in self.kernel.grid if g.tile > 1 and g.axis not in wanted]

    def _steps(self, statement: loops.Statement) -> list[Step]:
        """Return the element steps of a statement."""
        match statement:
            case loops.Compute(name, value, _):
                return [Assign(name, value, self.types[name])]
            case loops.Fold() | loops.Combine():
                types = tuple(self.types[name] for name in statement.names)
                return [replace(statement, types=types)]
            case loops.Store():
                return [statement]
            case loops.Commit(pairs):
                return self._commit(pairs)
            case loops.Loop() | loops.Branch() | loops.Contract():
                return []

    def _commit(self, pairs: tuple[tuple[str, str], ...]) -> list[Step]:
        """Return assignments that do as if all pairs were copied at once."""
        targets = {state for state, value in pairs if state != value}
        saved: list[Step] = []
        copies: list[Step] = []
        for state, value in pairs:
            if state == value:
                continue
            source = value
            if value in targets:
                source = f"{value}.old"
                self._define(source, self.types[value])
                saved.append(Assign(source, Ref(value, self.types[value]), self.types[value]))
            copies.append(Assign(state, Ref(source, self.types[value]), self.types[state]))
        return [*saved, *copies]

    def _define(self, name: str, type_: Type) -> None:
        self.types[name] = type_
        self.axes[name] = type_.axes

    def _body(self, body: Iterable[loops.Statement], fixed: frozenset[str]) -> list[Node]:
        nodes: list[Node] = []
        straight = _Straight()

        def flush() -> None:
            for steps, product in straight.parts():
                nodes.extend(self._nest(steps, fixed))
                if product is not None:
                    nodes.append(product)
            straight.clear()

        for statement in body:
            match statement:
                case loops.Loop(axis, tile, inner, _):
                    flush()
                    inside = fixed | {axis} if tile == 1 else fixed
                    nodes.append(Tiles(statement, self._body(inner, inside)))
                case loops.Branch(_, then, otherwise):
                    flush()
                    sides = self._body(then, fixed), self._body(otherwise, fixed)
                    nodes.append(If(statement, *sides))
                case loops.Contract():
                    steps, product = self._contract(statement, fixed)
                    for step in steps:
                        straight.add(step)
                    if product is not None:
                        straight.close(statement, product)
                case _:
                    for step in self._steps(statement):
                        straight.add(step)
        flush()
        return nodes

    def _nest(self, steps: list[Step], fixed: frozenset[str]) -> list[Node]:
        if not steps:
            return []
        order = loop_order(steps, fixed, self.facts)
        for step in steps:
            for name in step_writes(step):
                axes = self.axes[name]
                inner = sorted(
                    axes, key=lambda a: order.index(a) if a in order else -1 if a in fixed else 99
                )
                self.layout.setdefault(name, tuple(inner))
        return nest(steps, fixed, self.facts)

    # Matrix products -------------------------------------------------------------------------

    def _contract(
        self, contract: loops.Contract, fixed: frozenset[str]
    ) -> tuple[list[Step], Node | None]:
        """Return steps that bring the operands into memory, and the product."""
        fold = _as_fold(contract)
        if contract.type.dtype.kind != "float":
            return self._slow(contract, fold), None
        left, right, condition = contract.left, contract.right, contract.condition
        other: Expr | None = None
        if condition is not None:
            groups = contract_axes(contract)
            hidden = set(condition.type.axes)
            if not hidden & set(groups.columns):
                left, other = _masked(condition, left, contract), right
            elif not hidden & set(groups.rows):
                right, other = _masked(condition, right, contract), left
            else:
                return self._slow(contract, fold), None
        steps: list[Step] = []
        made = [
            self._operand(f"{contract.name}.{side}", expr, contract.type.dtype, steps)
            for side, expr in (("left", left), ("right", right))
        ]
        product = Multiply(replace(contract, left=made[0], right=made[1], condition=None))
        if other is None:
            return steps, product
        return steps, self._guarded(contract, fold, other, product, steps, fixed)

    def _guarded(
        self,
        contract: loops.Contract,
        fold: loops.Fold,
        other: Expr,
        product: Multiply,
        steps: list[Step],
        fixed: frozenset[str],
    ) -> Node:
        """Return the product, or selects where NaN or infinity would shine through a zero."""
        name = f"{contract.name}.finite"
        self._define(name, Type(BOOL))
        test = Apply("isfinite", (other,), replace(other.type, dtype=BOOL, weak=False))
        axes = tuple(other.type.axes)
        steps.append(loops.Fold((name,), "all", axes, (test,), None, (Type(BOOL),)))
        slow = self._nest(self._slow(contract, fold), fixed)
        return If(loops.Branch(Ref(name, Type(BOOL)), (), ()), [product], slow)

    def _slow(self, contract: loops.Contract, fold: loops.Fold) -> list[Step]:
        if not contract.accumulate:
            return [fold]
        part = f"{contract.name}.part"
        self._define(part, contract.type)
        refs = Ref(contract.name, contract.type), Ref(part, contract.type)
        total = Apply("add", refs, contract.type)
        return [replace(fold, names=(part,)), Assign(contract.name, total, contract.type)]

    def _operand(self, name: str, expr: Expr, dtype: DType, steps: list[Step]) -> Expr:
        """Return an operand that lies in memory, adding the step that puts it there if needed."""
        match expr:
            case Ref(name=value) if value in self.types and self.types[value].dtype is dtype:
                return expr
            case Load() if self.arrays[expr.array] is dtype and _is_plain(expr):
                return expr
            case _:
                type_ = Type(dtype, expr.type.axes)
                if name in self.types:
                    name = f"{name}.{len(self.types)}"
                self._define(name, type_)
                steps.append(Assign(name, expr, type_))
                return Ref(name, type_)


def without_unread(body: tuple[loops.Statement, ...]) -> tuple[loops.Statement, ...]:
    """Return a body without values that nothing reads, in all scopes."""
    while True:
        read = frozenset[str]().union(*map(tidy.reads, body))
        kept = _keep(body, read)
        if kept == body:
            return body
        body = kept


def _keep(body: tuple[loops.Statement, ...], read: frozenset[str]) -> tuple[loops.Statement, ...]:
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


@dataclass(frozen=True, slots=True)
class ContractAxes:
    """The axes of a matrix product by the part that they play."""

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def contract_axes(contract: loops.Contract) -> ContractAxes:
    """Return the axes of the product's result by their part."""
    left, right = set(contract.left.type.axes), set(contract.right.type.axes)
    axes = contract.type.axes
    return ContractAxes(
        tuple(a for a in axes if (a in left) == (a in right)),
        tuple(a for a in axes if a in left and a not in right),
        tuple(a for a in axes if a in right and a not in left),
    )


def _is_plain(load: Load) -> bool:
    """Say whether a load reads a part of an array, each axis by its own index."""
    axes = [part.axis for part in load.subscripts if isinstance(part, Index)]
    return len(axes) == len(load.subscripts) == len(set(axes))


def _masked(condition: Expr, operand: Expr, contract: loops.Contract) -> Expr:
    """Return the operand with zeros where elements are left out."""
    wanted = {*condition.type.axes, *operand.type.axes}
    order = dict.fromkeys((*contract.type.axes, *contract.over, *operand.type.axes))
    axes = tuple(axis for axis in order if axis in wanted)
    zero = Literal(0.0, Type(operand.type.dtype))
    type_ = replace(operand.type, axes=axes, weak=False)
    return Apply("where", (condition, operand, zero), type_)


def _as_fold(contract: loops.Contract) -> loops.Fold:
    """Return the product as a reduction, element by element."""
    axes = dict.fromkeys((*contract.left.type.axes, *contract.right.type.axes))
    type_ = replace(contract.type, axes=tuple(axes))
    product = Apply("mul", (contract.left, contract.right), type_)
    return loops.Fold(
        *((contract.name,), "sum", contract.over, (product,), contract.condition),
        (contract.type,),
    )
