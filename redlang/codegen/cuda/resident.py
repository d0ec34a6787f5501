"""Units whose rows lie in shared memory: copied there once, read part by part and again.

Registers then hold a part at a time, so that several units share an SM however long their rows are.
"""

from __future__ import annotations

from collections.abc import Iterator

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.ahead import Slots
from redlang.codegen.cuda.elements import Unit, emit_unit
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.codegen.cuda.parted import PartedUnit
from redlang.codegen.cuda.stored import StoredUnit
from redlang.ir.loops import Kernel, Loops
from redlang.ir.program import Expr, Load
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
    made: type[Unit] = Unit
    if kernel.kind == "on-chip" and (plan.shared or plan.stored):
        made = ResidentUnit if plan.shared else StoredUnit
    return emit_unit(made(loops, kernel, plan, classes))


class ResidentUnit(PartedUnit):
    """Writes the statements of a unit that holds its rows in shared memory."""

    slots: Slots

    def load_ahead(self) -> None:
        """Copy what only this unit reads to shared memory."""
        self.slots = Slots(self.frame, self.accesses, self.own_axes(), self.kernel.body, 1)
        self.sources = {source.load: source for source in self.slots.sources}
        # Which part is read, in a loop over parts.
        self.turn = ""
        self.find_parts(list(self.sources), PART)
        if self.sources:
            self.slots.fetch("i64(0)", None)
            self.slots.wait(0)

    def _load(self, expr: Expr, depth: int) -> Value:
        source = self.sources.get(expr) if isinstance(expr, Load) else None
        if source is None:
            return super()._load(expr, depth)
        offset = "i64(0)"
        if self.turn:
            pieces, _ = self.accesses.pieces(source.load)
            offset = f"{self.turn} * {pieces * source.stride}"
        return self.slots.read(source, offset, None)

    def parts(self, reads: frozenset[str]) -> Iterator[None]:
        """Write a loop over the parts of rows; what is written inside is its body."""
        frame, axis = self.frame, self.axis
        whole, needed = frame.plan, self.needed(reads)
        first, self.turn = frame.first(axis), frame.module.names.fresh("turn")
        self.forget_rows()
        self.part_plan()
        extent = frame.spread(axis).extent
        with frame.scope([axis], frozenset(compute.name for compute in needed)) as scope:
            self.write(needed)
            yield
        frame.plan = whole
        frame.line(f"{first} = i64(0)")
        frame.line(f"{self.turn} = i64(0)")
        frame.line(f"while {first} < {frame.parameter(Extent(axis))}:")
        for line in scope.lines:
            frame.line(f"    {line}")
        frame.line(f"    {first} = {first} + {extent}")
        frame.line(f"    {self.turn} = {self.turn} + 1")
        frame.line(f"{first} = i64(0)")
        # The loop has used the names of places in the whole range.
        for outer in frame.scopes:
            outer.variables -= scope.variables
        self.turn = ""
