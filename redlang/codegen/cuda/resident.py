"""Units whose rows lie in shared memory: copied there once, read part by part and again.

Registers then hold a part at a time, so that several units share an SM however long their rows are.
What is computed from a row, element by element, is computed anew in each loop over its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.ahead import Slots
from redlang.codegen.cuda.elements import Unit, emit_unit
from redlang.codegen.cuda.folds import Folding
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.ir import walk
from redlang.ir.loops import Compute, Fold, Kernel, Loops, Statement, Store
from redlang.ir.program import Expr, Load
from redlang.schedule import tidy
from redlang.schedule.threads import ThreadPlan

PART = 16
"""Elements of rows in shared memory that a thread reads at a time."""


def emit(loops: Loops, kernel: Kernel, plan: ThreadPlan, classes: Classes) -> KernelText:
    """Return the text of one kernel.

    Args:
        loops: The lowered program.
        kernel: One of its kernels, not one that only merges segments.
        plan: Its threads.
        classes: What is known of the arrays of every launch.
    """
    shared = plan.shared and kernel.kind == "on-chip"
    return emit_unit((ResidentUnit if shared else Unit)(loops, kernel, plan, classes))


class ResidentUnit(Unit):
    """Writes the statements of a unit that holds its rows in shared memory."""

    slots: Slots

    def load_ahead(self) -> None:
        """Copy what only this unit reads to shared memory."""
        own = {grid.axis for grid in self.kernel.grid} | set(self.kernel.resident)
        self.slots = Slots(self.frame, self.accesses, own, self.kernel.body, 1)
        self.sources = {source.load: source for source in self.slots.sources}
        # Which part is read, in a loop over parts.
        self.turn = ""
        # What is computed element by element, until something reads it.
        self.deferred: dict[str, Compute] = {}
        self.axis = self._axis()
        if self.sources:
            self.slots.fetch("i64(0)", None)
            self.slots.wait(0)

    def _axis(self) -> str:
        """Return the axis along which rows are read in parts: the only one that they have."""
        tiles = {self.accesses.tile(load)[0] for load in self.sources}
        if len(tiles) != 1 or len(*tiles) != 1:
            return ""
        ((axis,),) = tiles
        registers = self.frame.spread(axis).registers
        # Pieces of a part lie side by side where a group of elements is one piece.
        plain = all(self.accesses.pieces(load)[0] == registers for load in self.sources)
        return axis if plain and self._groups(axis) < registers else ""

    def _groups(self, axis: str) -> int:
        """Return how many groups of elements one part has."""
        spread = self.frame.spread(axis)
        fitting = [n for n in range(1, spread.registers + 1) if spread.registers % n == 0]
        most = PART // max(1, len(self.sources))
        return max(n for n in fitting if n == 1 or n * spread.width <= most)

    def _load(self, expr: Expr, depth: int) -> Value:
        source = self.sources.get(expr) if isinstance(expr, Load) else None
        if source is None:
            return super()._load(expr, depth)
        offset = "i64(0)"
        if self.turn:
            pieces, _ = self.accesses.pieces(source.load)
            offset = f"{self.turn} * {pieces * source.stride}"
        return self.slots.read(source, offset, None)

    # Statements -------------------------------------------------------------------------------

    def statement(self, statement: Statement) -> None:
        """Write one statement: what is computed from rows, when it is read."""
        if isinstance(statement, Compute) and self._waits(statement):
            self.deferred[statement.name] = statement
        elif isinstance(statement, Store) and self._tile([statement.value]) == (self.axis,):
            with self._parts(tidy.reads(statement)):
                super().statement(statement)
        else:
            self._define(tidy.reads(statement))
            super().statement(statement)

    def _waits(self, statement: Compute) -> bool:
        whole = self.frame.depth == 0 and statement.name not in self.changing
        return bool(self.axis) and whole and self._tile([statement.value]) == (self.axis,)

    def _tile(self, values: Sequence[Expr]) -> tuple[str, ...]:
        return self.frame.tile_axes({axis for value in values for axis in value.type.axes})

    def _needed(self, names: frozenset[str]) -> list[Compute]:
        """Return what waits to be computed and is read under some names, in order."""
        found: list[Compute] = []
        for name, compute in reversed(self.deferred.items()):
            if name in names:
                found.insert(0, compute)
                names |= tidy.reads(compute)
        return found

    def _define(self, names: frozenset[str]) -> None:
        """Compute as a whole what is read as a whole."""
        for compute in self._needed(names):
            del self.deferred[compute.name]
            super().statement(compute)

    @contextmanager
    def _parts(self, reads: frozenset[str]) -> Iterator[None]:
        """Write a loop over the parts of rows; what is written inside is its body."""
        frame, axis = self.frame, self.axis
        whole, needed = frame.plan, self._needed(reads)
        part = replace(frame.spread(axis), registers=self._groups(axis))
        first, self.turn = frame.first(axis), frame.module.names.fresh("turn")
        self._forget()
        frame.plan = replace(
            whole, spreads=tuple(part if s.axis == axis else s for s in whole.spreads)
        )
        with frame.scope([axis], frozenset(compute.name for compute in needed)) as scope:
            for compute in needed:
                super().statement(compute)
            yield
        frame.plan = whole
        frame.line(f"{first} = i64(0)")
        frame.line(f"{self.turn} = i64(0)")
        frame.line(f"while {first} < {frame.parameter(Extent(axis))}:")
        for line in scope.lines:
            frame.line(f"    {line}")
        frame.line(f"    {first} = {first} + {part.extent}")
        frame.line(f"    {self.turn} = {self.turn} + 1")
        frame.line(f"{first} = i64(0)")
        # The loop has used the names of places in the whole range.
        for outer in frame.scopes:
            outer.variables -= scope.variables
        self.turn = ""

    def _forget(self) -> None:
        """Forget what was computed from rows: they are read anew."""
        for scope in self.frame.scopes:
            for expr in [
                e for e in scope.known if not self.sources.keys().isdisjoint(walk.nodes(e))
            ]:
                del scope.known[expr]

    # Folds ------------------------------------------------------------------------------------

    def _fold_together(self, folds: Sequence[Fold]) -> None:
        reads = frozenset[str]().union(*map(tidy.reads, folds))
        values = [v for fold in folds for v in (*fold.values, fold.condition) if v is not None]
        if not self.axis or folds[0].over != (self.axis,) or self._tile(values) != (self.axis,):
            self._define(reads)
            super()._fold_together(folds)
            self._forget()
            return
        frame = self.frame
        states: list[tuple[Folding, list[Value]]] = []
        for fold in folds:
            how, _ = self.folds.how(fold)
            names = [frame.module.names.fresh(f"{fold.op}_so_far") for _ in how.codes]
            for name, neutral in zip(names, how.neutral, strict=True):
                frame.line(f"{name} = {neutral}")
            found = [Value(name, (), code) for name, code in zip(names, how.codes, strict=True)]
            states.append((how, found))
        with self._parts(reads):
            for fold, (_, so_far) in zip(folds, states, strict=True):
                self.folds.join_partial(fold, so_far)
        self._join_together(folds, states)
