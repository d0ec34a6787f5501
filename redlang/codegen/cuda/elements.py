"""Loops → a CUDA kernel over element tiles: values in registers, threads as the plan spreads them.

The unit's scope holds what the grid gives a range; loops open scopes of their own. A fold goes from
a thread's registers to the lanes of its warp to the warps of the block; threads of a strip keep
states of their own until the sweep is over (`merging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda import prefetching
from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.ahead import Ahead
from redlang.codegen.cuda.folds import Folding
from redlang.codegen.cuda.frame import Frame, Memory, Value, conjunction
from redlang.codegen.cuda.kernel_text import Classes, KernelText, Prefetch
from redlang.codegen.cuda.reducing import Folds
from redlang.codegen.cuda.statements import changing_names, is_plain, list_slots
from redlang.codegen.cuda.values import Operands, Values
from redlang.ir import walk
from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Compute,
    Contract,
    Fold,
    Kernel,
    Loop,
    Loops,
    Statement,
    Store,
)
from redlang.ir.program import Apply, Cast, Expr, Index, Load
from redlang.ir.types import Type, compute_type
from redlang.schedule import tidy
from redlang.schedule.threads import ThreadPlan

WORD = 4
AHEAD = 40
"""Registers of a thread that loaded tiles may take before anything is computed."""


def emit_unit(unit: Unit) -> KernelText:
    """Return the text of a unit's kernel."""
    with unit.frame.scope(unit.unit_axes()) as scope:
        unit.begin()
        unit.load_ahead()
        unit.run(unit.kernel.body)
    return unit.finished(scope.lines)


class Unit:
    """Writes the statements of one unit."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: ThreadPlan, classes: Classes) -> None:
        self.frame = Frame(loops, kernel, plan, classes)
        self.values = Values(self.frame, self._load)
        self.accesses = Accesses(self.frame, self.values)
        self.folds = Folds(self.frame, self.values)
        self.frame.slots |= list_slots(kernel.body)
        self.kernel = kernel
        self.plan = plan
        # Names that are given several values, and the variables that they have.
        self.changing = changing_names(kernel.body)
        self.variables: set[str] = set()
        # The lines of the unit's scope before anything is read, and those that prefetch.
        self.opening = 0
        self.prefetch: Prefetch | None = None

    def _load(self, expr: Expr, depth: int) -> Value:
        return self.accesses.load(expr, depth)  # type: ignore[arg-type]  # loads and memory refs

    # The unit ---------------------------------------------------------------------------------

    def unit_axes(self) -> list[str]:
        """Return the axes that have their range in the unit's scope."""
        segment = [] if self.kernel.segment is None else [self.kernel.segment.index]
        return [*(grid.axis for grid in self.kernel.grid), *self.kernel.resident, *segment]

    def begin(self) -> None:
        """Write which unit this is, and find what it reads first."""
        self.ranges()
        frame = self.frame
        loop = prefetching.first_loop(self.kernel.body)
        head, indent = [], ""
        if loop is not None:
            # There may be nothing to read, and nowhere.
            first, (start, stop) = frame.first(loop.axis), self.bounds(loop.axis)
            head, indent = [f"{first} = {start}", f"if {first} < {stop}:"], "    "
        with frame.scope([] if loop is None else [loop.axis]) as scope:
            blocks = prefetching.write(frame, self.accesses, self.kernel.body)
        if blocks:
            self.prefetch = Prefetch((*head, *(indent + line for line in scope.lines)), blocks)
        self.opening = len(frame.scopes[-1].lines)

    def ranges(self) -> None:
        """Write which tile of each grid axis this unit has."""
        frame = self.frame
        grid = self.kernel.grid
        if self.plan.blocks > 1:
            frame.line("t.cluster_arrive()")
        # Without a grid there is one unit, which the others of its block repeat.
        if grid or self.plan.units > 1:
            unit = self._unit_number()
            for position, axis in reversed(list(enumerate(grid))):
                count = f"t.tiles({frame.parameter(Extent(axis.axis))}, {axis.tile})"
                tile = unit
                if position:
                    rest = frame.module.names.fresh("rest")
                    tile = frame.module.names.of("tile", f"{axis.axis}_tile")
                    frame.line(f"{rest}, {tile} = t.divided({unit}, {count})")
                    unit = rest
                scaled = f" * {axis.tile}" if axis.tile > 1 else ""
                frame.line(f"{frame.first(axis.axis)} = i64({tile}){scaled}")
        for axis_name in self.kernel.resident:
            frame.line(f"{frame.first(axis_name)} = i64(0)")

    def _unit_number(self) -> str:
        frame = self.frame
        if self.plan.units == 1:
            share = f" // i32({self.plan.blocks})" if self.plan.blocks > 1 else ""
            frame.line(f"unit = i32(cuda.blockIdx.x){share}")
            return "unit"
        own = f"i32(cuda.threadIdx.x) // i32({self.plan.unit_threads})"
        frame.line(f"unit = i32(cuda.blockIdx.x) * i32({self.plan.units}) + {own}")
        frame.line(f"units = {self._unit_count()}")
        # The last block may have too few units: the rest repeat one and store nothing.
        frame.line("active = unit < units")
        frame.line("unit = i32(t.smaller(i64(unit), i64(units) - 1))")
        return "unit"

    def _unit_count(self) -> str:
        counts = [
            f"t.tiles({self.frame.parameter(Extent(grid.axis))}, {grid.tile})"
            for grid in self.kernel.grid
        ]
        return " * ".join(counts) or "i64(1)"

    def finished(self, lines: Sequence[str]) -> KernelText:
        """Return the kernel around the unit's lines."""
        frame = self.frame
        names = ", ".join(frame.parameters.values())
        body = [f"def {frame.entry}({names}):", *(f"    {line}" for line in lines)]
        return KernelText(
            entry=frame.entry,
            source=frame.module.text(body),
            parameters=tuple(frame.parameters),
            threads=self.plan.threads,
            min_blocks=self.plan.min_blocks,
            shared_bytes=frame.shared_bytes,
            grid=tuple((grid.axis, grid.tile) for grid in self.kernel.grid),
            units=self.plan.units,
            cluster=self.plan.blocks,
            opening=self.opening,
            prefetch=self.prefetch,
        )

    # Statements -------------------------------------------------------------------------------

    def load_ahead(self) -> None:
        """Load what later statements read before the first fold waits, if registers allow."""
        if self.kernel.kind != "on-chip":
            return
        frame = self.frame
        found: dict[Expr, float] = {}
        for statement in self.kernel.body:
            if isinstance(statement, Loop | Branch):
                continue
            for node in (n for e in tidy.expressions(statement) for n in walk.nodes(e)):
                if isinstance(node, Load) and all(isinstance(p, Index) for p in node.subscripts):
                    # What is folded is computed with at once; the rest waits as it was stored.
                    size = frame.memories[node.array].dtype.bytes if found else WORD
                    found[node] = frame.size(node.type.axes) * size / WORD
        if len(found) > 1 and sum(found.values()) <= AHEAD:
            for load in found:
                self.values.value(load)

    def run(self, body: Sequence[Statement]) -> None:
        """Write statements in order, folds that do not need each other in one go."""
        pending: list[Fold] = []
        for statement in body:
            if pending and self._must_wait(statement, pending):
                self._fold_together(pending)
                pending = []
            if self.kernel.kind == "on-chip" and is_plain(statement):
                assert isinstance(statement, Fold)
                pending.append(statement)
            else:
                self.statement(statement)
        if pending:
            self._fold_together(pending)

    def _must_wait(self, statement: Statement, pending: Sequence[Fold]) -> bool:
        """Tell whether a statement can only be written after the pending folds."""
        made = frozenset().union(*map(tidy.writes, pending))
        read = frozenset().union(*map(tidy.reads, pending))
        if made & tidy.reads(statement) or read & tidy.writes(statement):
            return True
        if isinstance(statement, Compute):
            return False
        return not (is_plain(statement) and statement.over == pending[0].over)  # type: ignore[union-attr]

    def _fold_together(self, folds: Sequence[Fold]) -> None:
        self._join_together(folds, [self.folds.partial(fold) for fold in folds])

    def _join_together(
        self, folds: Sequence[Fold], partial: Sequence[tuple[Folding, list[Value]]]
    ) -> None:
        for fold, values in zip(folds, self.folds.together(folds, partial), strict=True):
            self._results(fold, values)

    def statement(self, statement: Statement) -> None:
        """Write one statement."""
        match statement:
            case Compute():
                self.compute(statement)
            case Fold():
                self.fold(statement)
            case Contract():
                self.contract(statement)
            case Combine():
                self.combine(statement)
            case Commit(pairs):
                self.commit(pairs)
            case Store():
                self.store(statement)
            case Loop():
                self.loop(statement)
            case Branch():
                self.branch(statement)
            case _:
                assert_never(statement)

    def compute(self, statement: Compute) -> None:
        """Give a name its value."""
        name = statement.name
        value = self._over(statement.value, statement.type, name)
        self.frame.define(name, self._named(name, value))

    def _over(self, expr: Expr, type_: Type, base: str = "value") -> Value:
        """Return an expression as a tile over exactly the axes of a type."""
        tile = self.frame.tile_axes(type_.axes)
        value = self.values.value(expr, base)
        return value if value.axes == tile else self._spread_out(value, tile)

    def _spread_out(self, value: Value, tile: tuple[str, ...]) -> Value:
        operands = Operands()
        name = operands.name(value)
        (wide,) = self.values.mapped(
            "spread", [value.code], [], [name], operands, tile, self.frame.depth
        )
        return wide

    def _named(self, name: str, value: Value) -> Value:
        """Give a value a variable of its own where its name or its variable will change."""
        frame = self.frame
        if name not in self.changing:
            if value.text not in self.variables:
                return value
            return self.values.assign(name, value.text, value.axes, value.code, frame.depth)
        variable = frame.module.names.of("value", name)
        self.variables.add(variable)
        if value.text != variable:
            self.frame.line(f"{variable} = {value.text}")
        return replace(value, text=variable)

    def commit(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give states their new values, all at once."""
        found = []
        for state, name in pairs:
            value = self.frame.lookup(name)
            assert value is not None, name
            found.append((state, value))
        variables = [self.frame.module.names.of("value", state) for state, _ in found]
        texts = [value.text for _, value in found]
        if len(found) > 1 and set(variables) & set(texts):
            fresh = [self.frame.module.names.fresh("next") for _ in found]
            for name, text in zip(fresh, texts, strict=True):
                self.frame.line(f"{name} = {text}")
            texts = fresh
        for (state, value), variable, text in zip(found, variables, texts, strict=True):
            self.frame.line(f"{variable} = {text}")
            self.frame.define(state, replace(value, text=variable))

    def store(self, statement: Store) -> None:
        """Round and store a tile."""
        memory = self.frame.memories[statement.target]
        value = rounded(statement.value, memory)
        type_ = Type(compute_type(memory.dtype), statement.axes)
        tile = self._over(value, type_)
        self.accesses.store(memory, statement.axes, tile, self.lead(statement.axes))

    def lead(self, axes: Sequence[str]) -> str:
        """Return a test for one of the threads that hold the same tile over `axes`."""
        own = {bit for axis in axes for bit in self.plan.bits(axis)}
        every = range((self.plan.unit_threads - 1).bit_length())
        copies = [bit for bit in every if bit not in own]
        tests = []
        if self.plan.units > 1:
            tests.append("active")
        if copies:
            mask = sum(1 << bit for bit in copies)
            tests.append(f"({self.frame.thread()} & i32({mask})) == i32(0)")
        return conjunction(tests)

    def loop(self, statement: Loop) -> None:
        """Write a loop over the tiles of an axis, or its body alone if there is only one."""
        frame = self.frame
        axis = statement.axis
        limit = self._extent_limit(axis)
        first = frame.first(axis)
        start, stop = self.bounds(axis)
        single = limit is not None and limit <= statement.tile
        written = frozenset().union(*(tidy.writes(s) for s in statement.body))
        frame.line(f"{first} = {start}")
        ring = None if single else self._ahead(statement)
        before = frame.shared_bytes
        with frame.scope([axis], written) as scope:
            if ring is not None:
                ring.turn()
            if statement.some is not None:
                self._guarded_body(statement)
            else:
                self.run(statement.body)
            if not single and frame.shared_bytes > before:
                # The next round writes what slower threads may still be reading.
                frame.line("t.barrier()")
            if ring is not None:
                ring.next()
        if single:
            for line in scope.lines:
                frame.line(line)
            return
        frame.line(f"while {first} < {stop}:")
        for line in scope.lines:
            frame.line(f"    {line}")
        frame.line(f"    {first} = {first} + {self.step(axis, statement.tile)}")

    def _ahead(self, statement: Loop) -> Ahead | None:
        """Start copies of the first tiles of a loop whose loads run ahead, if it has any."""
        if not self.plan.ahead or statement.axis not in self.plan.strips:
            return None
        step = self.step(statement.axis, statement.tile)
        ring = Ahead(self.frame, self.accesses, statement.axis, step, statement.body)
        if ring.is_empty:
            return None
        ring.begin()
        return ring

    def bounds(self, axis: str) -> tuple[str, str]:
        """Return first index and end of what this unit covers of a looped axis."""
        if axis in self.frame.slots:
            return "i64(0)", f"i64({self.frame.slots[axis]})"
        return "i64(0)", self.frame.parameter(Extent(axis))

    def step(self, axis: str, tile: int) -> str:
        """Return the distance between the tiles of a looped axis that this unit takes."""
        return str(tile)

    def _extent_limit(self, axis: str) -> int | None:
        if axis in self.frame.slots:
            return self.frame.slots[axis]
        return self.frame.classes.limits.get(axis)

    def _guarded_body(self, statement: Loop) -> None:
        assert statement.some is not None
        frame = self.frame
        text = self.values.value(statement.some).text
        before = frame.shared_bytes
        with frame.scope([]) as inner:
            self.run(statement.body)
        indent = "    "
        if self.plan.units > 1:
            # Units decide for themselves, but a warp shuffles as one, and a block waits as one.
            text = f"t.ballot({text}) != 0"
            indent = "    " if frame.shared_bytes == before else ""
        if indent:
            frame.line(f"if {text}:")
        for line in inner.lines or ["pass"]:
            frame.line(f"{indent}{line}")

    def branch(self, statement: Branch) -> None:
        """Write both sides of a branch that all threads of a unit take alike."""
        frame = self.frame
        test = self.values.value(statement.condition)
        written = tidy.writes(statement)
        for head, body in ((f"if {test.text}:", statement.then), ("else:", statement.otherwise)):
            with frame.scope([], written) as scope:
                self.run(body)
            frame.line(head)
            for line in scope.lines or ["pass"]:
                frame.line(f"    {line}")
            for name, value in scope.names.items():
                frame.define(name, value)

    # Folds ------------------------------------------------------------------------------------

    def contract(self, statement: Contract) -> None:
        """Write a small matrix product as the fold that it is."""
        left, right = statement.left, statement.right
        axes = tuple(a for a in self.frame.order if a in {*left.type.axes, *right.type.axes})
        product = Apply("mul", (left, right), Type(statement.type.dtype, axes))
        name = f"{statement.name}.product" if statement.accumulate else statement.name
        self.fold(
            Fold((name,), "sum", statement.over, (product,), statement.condition, (statement.type,))
        )
        if statement.accumulate:
            self.combine(
                Combine((statement.name,), "sum", (statement.name,), (name,), (statement.type,))
            )

    def fold(self, statement: Fold) -> None:
        """Write a fold over the current ranges of its axes."""
        self._results(statement, self.folds.fold(statement))

    def combine(self, statement: Combine) -> None:
        """Write the joining of two partial results."""
        self._results(statement, self.folds.combine(statement))

    def _results(self, statement: Fold | Combine, values: Sequence[Value]) -> None:
        for name, type_, value in zip(statement.names, statement.types, values, strict=True):
            tile = self.frame.tile_axes(type_.axes)
            wide = value if value.axes == tile else self._spread_out(value, tile)
            self.frame.define(name, self._named(name, wide))


def rounded(value: Expr, memory: Memory) -> Expr:
    """Return a value in the compute type of the memory that it is stored to."""
    target = compute_type(memory.dtype)
    if isinstance(value, Cast) and value.explicit and value.to is memory.dtype:
        # The store rounds in the same way.
        inner = value.operand
        if memory.dtype.kind == "float" and inner.type.dtype is target:
            value = inner
    if value.type.dtype is target:
        return value
    return Cast(value, memory.dtype, replace(value.type, dtype=target, weak=False))
