"""The merge of the segments of a matrix kernel: every row for itself, several segments at a time.

Loads of a few segments stand before the first of them is joined, so that their way from memory is
waited for once. They are joined in order, so that the result has the same bits in every run.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.elements import Unit, emit_unit
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.ir.loops import Compute, GridAxis, Kernel, Loop, Loops, Store
from redlang.ir.program import Ref
from redlang.ir.types import Type
from redlang.schedule import tidy
from redlang.schedule.device import WARP
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.threads import Spread, ThreadPlan

THREADS = 128
WIDTH = 4
"""Neighbouring elements of a thread: 16 bytes of f32."""
TOGETHER = 4
"""Segments that are loaded at once, at most."""
HELD = 32
"""Elements of several segments that a thread holds at once."""


def emit_merge(loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> KernelText:
    """Return the text of a merge kernel.

    Args:
        loops: The lowered program.
        kernel: The kernel that merges the segments of another.
        plan: The plan of that one.
        classes: What is known of the arrays of every launch.
    """
    threads = _threads(kernel, plan)
    grid = tuple(GridAxis(g.axis, threads.spread(g.axis).extent) for g in kernel.grid)
    return emit_unit(_MergeUnit(loops, replace(kernel, grid=grid), threads, classes))


def _threads(kernel: Kernel, plan: MatrixPlan) -> ThreadPlan:
    """Spread columns over lanes."""
    held = {
        axis
        for statement in kernel.body
        for axis in (
            statement.type.axes
            if isinstance(statement, Compute)
            else statement.axes
            if isinstance(statement, Store)
            else ()
        )
    }
    whole = [axis for axis, _ in plan.columns if axis in held]
    spreads = [Spread(axis, plan.width(axis)) for axis in whole[1:]]
    lanes = 1
    if whole:
        groups = -(-plan.width(whole[0]) // WIDTH)
        lanes = min(WARP, 1 << (groups - 1).bit_length())
        more = -(-groups // lanes) if whole[0] in kernel.resident else 1
        spreads.append(Spread(whole[0], more, lanes, WIDTH))
    return ThreadPlan(tuple(spreads), units=THREADS // lanes)


class _MergeUnit(Unit):
    """Writes a unit that joins segments."""

    def loop(self, statement: Loop) -> None:
        """Write the loop over segments, a few at a time; other loops as they are."""
        reads = {
            s.value.name: s
            for s in statement.body
            if isinstance(s, Compute)
            and isinstance(s.value, Ref)
            and s.value.name in self.frame.memories
        }
        if not reads:
            super().loop(statement)
            return
        frame, index = self.frame, statement.axis
        parts = frame.parameter(Extent(index))
        initial = {space: self._initial(statement, read) for space, read in reads.items()}
        held = sum(frame.size(frame.tile_axes(read.type.axes)) for read in reads.values())
        together = max(1, min(TOGETHER, HELD // max(1, held)))
        written = frozenset[str]().union(*map(tidy.writes, statement.body))
        frame.line("step = i64(0)")
        with frame.scope([], written) as scope:
            found = [self._loaded(index, parts, reads, initial, place) for place in range(together)]
            for values in found:
                frame.stand_ins = values
                with frame.scope([index], written) as inner:
                    self.run(statement.body)
                frame.stand_ins = {}
                for line in inner.lines:
                    frame.line(line)
            frame.line(f"step = step + {together}")
        frame.line(f"while step < {parts}:")
        for line in scope.lines:
            frame.line(f"    {line}")

    def _initial(self, statement: Loop, read: Compute) -> str:
        """Keep the initial value of the state that a segment's is joined with."""
        frame = self.frame
        state = read.name.removeprefix("b.")
        value = frame.lookup(state)
        assert value is not None, (state, statement)
        name = frame.module.names.fresh("initial")
        frame.line(f"{name} = {value.text}")
        return name

    def _loaded(
        self,
        index: str,
        parts: str,
        reads: dict[str, Compute],
        initial: dict[str, str],
        place: int,
    ) -> dict[str, Value]:
        """Load the states of one segment; beyond the last one, initial values."""
        frame = self.frame
        values = {}
        with frame.scope([index]) as scope:
            some = f"some_{place}"
            if place:
                frame.line(f"{some} = step + {place} < {parts}")
                frame.line(f"{frame.first(index)} = t.smaller(step + {place}, {parts} - 1)")
            else:
                frame.line(f"{frame.first(index)} = step")
            for space, read in reads.items():
                memory = frame.memories[space]
                loaded = self.values.value(Ref(space, Type(memory.dtype, memory.axes)))
                name = frame.module.names.fresh("other")
                text = loaded.text
                if place:
                    text = f"t.choose({some}, {text}, {initial[space]})"
                frame.line(f"{name} = {text}")
                values[space] = replace(loaded, text=name, axes=frame.tile_axes(read.type.axes))
        for line in scope.lines:
            frame.line(line)
        return values
