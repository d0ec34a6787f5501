"""Units whose rows are read part by part, so that few registers serve what is computed from them.

What is computed from a row, element by element, is computed anew wherever parts of it are read.
Where the rows are meanwhile, and whether parts are turns of a loop, is for subclasses to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redlang.codegen.cuda.elements import Unit
from redlang.codegen.cuda.folds import Folding
from redlang.codegen.cuda.frame import Value
from redlang.ir import walk
from redlang.ir.loops import Compute, Fold, Statement, Store
from redlang.ir.program import Expr, Load
from redlang.schedule import tidy


class PartedUnit(Unit):
    """Writes the statements of a unit that reads its rows in parts.

    Attributes:
        axis: The axis along which rows have parts, or empty: there are none then.
        rows: The loads of rows.
        deferred: What is computed element by element, until something reads it.
    """

    axis: str
    rows: frozenset[Load]
    deferred: dict[str, Compute]

    def own_axes(self) -> set[str]:
        """Return the axes of what only this unit reads."""
        return {grid.axis for grid in self.kernel.grid} | set(self.kernel.resident)

    def find_parts(self, rows: Sequence[Load], most: int) -> None:
        """Decide whether there are parts, of `most` elements of all rows together at most."""
        self.rows = frozenset(rows)
        self.deferred = {}
        self.axis = ""
        self.groups = 1
        tiles = {self.accesses.tile(load)[0] for load in rows}
        if len(tiles) != 1 or len(*tiles) != 1:
            return
        ((axis,),) = tiles
        spread = self.frame.spread(axis)
        # Pieces of a part lie side by side where a group of elements is one piece.
        if any(self.accesses.pieces(load)[0] != spread.registers for load in rows):
            return
        fitting = [n for n in range(1, spread.registers + 1) if spread.registers % n == 0]
        self.groups = max(n for n in fitting if n == 1 or n * spread.width * len(rows) <= most)
        if self.groups < spread.registers:
            self.axis = axis

    def parts(self, reads: frozenset[str]) -> Iterator[None]:
        """Write what reads some names, for one part or each: the caller writes it when told."""
        raise NotImplementedError

    # Statements -------------------------------------------------------------------------------

    def statement(self, statement: Statement) -> None:
        """Write one statement: what is computed from rows, when it is read."""
        if isinstance(statement, Compute) and self._waits(statement):
            self.deferred[statement.name] = statement
        elif isinstance(statement, Store) and self._tile([statement.value]) == (self.axis,):
            for _ in self.parts(tidy.reads(statement)):
                super().statement(statement)
        else:
            self._define(tidy.reads(statement))
            super().statement(statement)

    def _waits(self, statement: Compute) -> bool:
        whole = self.frame.depth == 0 and statement.name not in self.changing
        return bool(self.axis) and whole and self._tile([statement.value]) == (self.axis,)

    def _tile(self, values: Sequence[Expr]) -> tuple[str, ...]:
        return self.frame.tile_axes({axis for value in values for axis in value.type.axes})

    def needed(self, names: frozenset[str]) -> list[Compute]:
        """Return what waits to be computed and is read under some names, in order."""
        found: list[Compute] = []
        for name, compute in reversed(self.deferred.items()):
            if name in names:
                found.insert(0, compute)
                names |= tidy.reads(compute)
        return found

    def write(self, computes: Sequence[Compute]) -> None:
        """Compute what has waited."""
        for compute in computes:
            super().statement(compute)

    def _define(self, names: frozenset[str]) -> None:
        """Compute as a whole what is read as a whole."""
        for compute in self.needed(names):
            del self.deferred[compute.name]
            super().statement(compute)

    def part_plan(self, start: int = 0) -> None:
        """Let the axis have as many elements as one part, from a group of them on."""
        whole = self.frame.plan
        self.frame.parted.setdefault(self.axis, self.frame.spread(self.axis).extent)
        part = replace(self.frame.spread(self.axis), registers=self.groups, start=start)
        spreads = tuple(part if s.axis == self.axis else s for s in whole.spreads)
        self.frame.plan = replace(whole, spreads=spreads)

    def forget_rows(self) -> None:
        """Forget what was computed from rows: they are read anew."""
        for scope in self.frame.scopes:
            for expr in [e for e in scope.known if not self.rows.isdisjoint(walk.nodes(e))]:
                del scope.known[expr]

    # Folds ------------------------------------------------------------------------------------

    def _fold_together(self, folds: Sequence[Fold]) -> None:
        reads = frozenset[str]().union(*map(tidy.reads, folds))
        values = [v for fold in folds for v in (*fold.values, fold.condition) if v is not None]
        if not self.axis or folds[0].over != (self.axis,) or self._tile(values) != (self.axis,):
            self._define(reads)
            super()._fold_together(folds)
            self.forget_rows()
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
        for _ in self.parts(reads):
            for fold, (_, so_far) in zip(folds, states, strict=True):
                self.folds.join_partial(fold, so_far)
        self._join_together(folds, states)
