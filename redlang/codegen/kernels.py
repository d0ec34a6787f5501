"""A kernel of the loop IR as a tree of loops over tiles, loops over elements, steps and products.

Here matrix products get operands that lie in memory, and grid axes that nothing wants whole are
taken one index at a time: every value of a unit then needs memory for one index only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from redlang.codegen import bodies
from redlang.codegen.bodies import statements
from redlang.codegen.continuing import continued
from redlang.codegen.nesting import (
    Facts,
    For,
    If,
    Multiply,
    Node,
    Tiles,
    dependences,
    innermost,
    is_minor,
    loop_order,
    nest,
)
from redlang.codegen.products import as_fold, hidden, is_plain, product_axes
from redlang.codegen.steps import Assign, Step, step_reads, step_writes
from redlang.ir import loops, walk
from redlang.ir.build import Builder
from redlang.ir.program import Apply, ArrayParam, Expr, Literal, Load, Ref
from redlang.ir.types import BOOL, DType, Type
from redlang.schedule import tidy
from redlang.schedule.bounds import certain

# Loops of a literal extent up to this one are written out: coordinates, colours.
UNROLLED = 4


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
        unrolled: Axes whose loops are written out, with their extents: each index of a value along
            them is a variable of its own.
    """

    root: list[Node]
    types: dict[str, Type]
    slots: dict[str, str]
    slot_counts: dict[str, int]
    layout: dict[str, tuple[str, ...]]
    fixed: frozenset[str]
    unrolled: dict[str, int] = field(default_factory=dict)


def build_tree(
    program_loops: loops.Loops, kernel: loops.Kernel, unit: dict[str, str | None]
) -> Tree:
    """Return the tree of one kernel, for arrays with these unit strides."""
    order = [axis.name for axis in program_loops.program.axes]
    prepared = bodies.prepared(kernel, order)
    body, going_on = continued(prepared.body)
    return _Builder(program_loops, replace(prepared, body=body), unit, going_on).build()


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
        self._products: list[tuple[loops.Contract, list[Node]]] = []

    def add(self, step: Step) -> None:
        """Put a step into the earliest part that its dependences allow."""
        place = len(self._steps) - 1
        while place > 0 and not any(dependences(s, step) for s in self._steps[place]):
            contract, _ = self._products[place - 1]
            reads = frozenset[str]().union(*map(walk.refs, tidy.expressions(contract)))
            touched = step_reads(step) | step_writes(step)
            if contract.name in touched or step_writes(step) & reads:
                break
            place -= 1
        self._steps[place].append(step)

    def close(self, contract: loops.Contract, product: list[Node]) -> None:
        """Put a product behind all steps so far."""
        self._products.append((contract, product))
        self._steps.append([])

    def parts(self) -> Iterator[tuple[list[Step], list[Node]]]:
        """Yield each part's steps with the product behind them."""
        yield from zip(self._steps, [*(nodes for _, nodes in self._products), []], strict=True)


class _Builder:
    def __init__(
        self,
        program_loops: loops.Loops,
        kernel: loops.Kernel,
        unit: dict[str, str | None],
        going_on: frozenset[str],
    ) -> None:
        self.kernel = kernel
        program = program_loops.program
        arrays = [p for p in program.params if isinstance(p, ArrayParam)]
        self.literal = {a.name: a.extent for a in program.axes if isinstance(a.extent, int)}
        self.dtypes: dict[str, DType] = {p.name: p.dtype for p in arrays}
        values = bodies.values_of(kernel)
        self.types, self.slots, self.counts = values.types, values.slots, values.counts
        self.axes: dict[str, tuple[str, ...]] = {p.name: p.axes for p in arrays}
        self.axes |= {f"result.{i}": result.axes for i, result in enumerate(program.results)}
        self.axes |= {space.name: space.axes for space in program_loops.workspaces}
        self.axes |= {name: type_.axes for name, type_ in self.types.items()}
        self.layout: dict[str, tuple[str, ...]] = {}
        votes = {}
        for statement in statements(kernel.body):
            if isinstance(statement, loops.Contract) and statement.type.dtype.kind == "float":
                axes = product_axes(statement)
                self.layout[statement.name] = (*axes.batch, *axes.rows, *axes.columns)
                if axes.columns:
                    votes[statement.name] = axes.columns[-1]
        order = tuple(axis.name for axis in program.axes)
        segment = [kernel.segment.index] if kernel.segment is not None else []
        self.builder = Builder((*segment, *order))
        self.facts = Facts(order, self.slots, self.axes, unit, votes, going_on)

    def build(self) -> Tree:
        """Return the finished tree."""
        single = {g.axis for g in self.kernel.grid if g.tile == 1}
        if self.kernel.segment is not None:
            single.add(self.kernel.segment.index)
        peeled = self._peeled(frozenset(single))
        root = self._body(self.kernel.body, frozenset(single) | frozenset(peeled))
        for axis in reversed(peeled):
            root = [For(axis, root)]
        fixed = frozenset(single)
        unrolled = self._unrolled()
        return Tree(root, self.types, self.slots, self.counts, self.layout, fixed, unrolled)

    def _unrolled(self) -> dict[str, int]:
        """Return short axes of literal extent that a unit always has whole."""
        cut = {grid.axis for grid in self.kernel.grid}
        for statement in statements(self.kernel.body):
            match statement:
                case loops.Loop(axis=axis):
                    cut.add(axis)
                case loops.Contract():
                    # Operands of products lie in memory.
                    return {}
                case _:
                    pass
        return {a: n for a, n in self.literal.items() if n <= UNROLLED and a not in cut}

    def _peeled(self, single: frozenset[str]) -> list[str]:
        """Return the grid axes that no step wants innermost and no product has whole."""
        wanted: set[str] = set()
        steps: list[Step] = []
        for statement in statements(self.kernel.body):
            if isinstance(statement, loops.Contract):
                axes = product_axes(statement)
                wanted |= {*axes.rows, *axes.columns}
            steps += self._steps(statement)
        over = [self.facts.step_axes(step) - single for step in steps]
        for step, mine in zip(steps, over, strict=True):
            votes = innermost(step, self.facts)
            free = [axis for axis in votes if axis in mine]
            if free and not is_minor(mine, over):
                wanted.add(max(free, key=lambda axis: votes[axis]))
        return [g.axis for g in self.kernel.grid if g.tile > 1 and g.axis not in wanted]

    # Steps -----------------------------------------------------------------------------------

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
                nodes.extend(product)
            straight.clear()

        for statement in body:
            match statement:
                case loops.Loop(axis, tile, inner, _):
                    flush()
                    inside = fixed | {axis} if tile == 1 else fixed
                    nodes.append(Tiles(statement, self._body(inner, inside)))
                case loops.Branch(condition, then, otherwise):
                    flush()
                    sides = self._body(then, fixed), self._body(otherwise, fixed)
                    nodes.append(If(condition, *sides))
                case loops.Contract():
                    steps, product = self._contract(statement, fixed)
                    for step in steps:
                        straight.add(step)
                    if product:
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
                # Axes without a loop here have one index, or are whole and come innermost.
                places = {axis: place for place, axis in enumerate(order)}
                places |= dict.fromkeys(fixed, -1)
                inner = sorted(self.axes[name], key=lambda a: places.get(a, len(order)))
                self.layout.setdefault(name, tuple(inner))
        return nest(steps, fixed, self.facts)

    # Matrix products -------------------------------------------------------------------------

    def _contract(
        self, contract: loops.Contract, fixed: frozenset[str]
    ) -> tuple[list[Step], list[Node]]:
        """Return steps that bring the operands into memory, and the product."""
        if contract.type.dtype.kind != "float":
            return self._slow(contract), []
        if contract.condition is None:
            steps, product = self._product(contract, contract.left, contract.right)
            return steps, [product]
        masked = hidden(contract)
        if masked is None:
            return self._slow(contract), []
        steps, product = self._product(contract, masked.left, masked.right)
        name = f"{contract.name}.finite"
        finite = Type(BOOL)
        self._define(name, finite)
        test = Apply("isfinite", (masked.other,), replace(masked.other.type, dtype=BOOL))
        axes = tuple(masked.other.type.axes)
        fold = loops.Fold((name,), "all", axes, (test,), None, (finite,))
        operands = product.contract
        slow = self._slow(replace(contract, left=operands.left, right=operands.right))
        otherwise = self._nest(slow, fixed)
        guarded = If(Ref(name, finite), [product], otherwise)
        full = certain(contract.condition, self.builder)
        if full is None:
            return [*steps, fold], [guarded]
        # Only where something may be hidden need the other operand be looked at.
        yes: list[Step] = [Assign(name, Literal(True, finite), finite)]
        look = If(full, self._nest(yes, fixed), self._nest([fold], fixed))
        return steps, [look, guarded]

    def _product(
        self, contract: loops.Contract, left: Expr, right: Expr
    ) -> tuple[list[Step], Multiply]:
        steps: list[Step] = []
        dtype = contract.type.dtype
        made = [
            self._operand(f"{contract.name}.{side}", expr, dtype, steps)
            for side, expr in (("left", left), ("right", right))
        ]
        return steps, Multiply(replace(contract, left=made[0], right=made[1], condition=None))

    def _slow(self, contract: loops.Contract) -> list[Step]:
        """Return steps that add up the product element by element."""
        fold = as_fold(contract)
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
            case Load() if self.dtypes[expr.array] is dtype and is_plain(expr):
                return expr
            case _:
                type_ = Type(dtype, expr.type.axes)
                if name in self.types:
                    name = f"{name}.{len(self.types)}"
                self._define(name, type_)
                steps.append(Assign(name, expr, type_))
                return Ref(name, type_)
