"""Which unit a block has: where its tiles begin, where loops begin and end, which tiles count."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.matrix_consumer import Consumer
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_masks import Bounds, greatest, least, tile_bounds
from redlang.codegen.cuda.matrix_order import paneled
from redlang.ir import walk
from redlang.ir.loops import Contract, Fold, Kernel, Loop
from redlang.ir.program import Expr, Index, Load, Ref
from redlang.ir.types import I64, Type
from redlang.schedule.bounds import ends, possible
from redlang.schedule.matrices import MatrixPlan

# Half of the smallest L2 that matters: what the blocks at work read again should stay there.
_L2_BYTES = 24 << 20


class UnitRanges:
    """Writes what follows from the number of a unit."""

    kernel: Kernel
    plan: MatrixPlan
    consumer: Consumer
    frame: MatrixFrame
    loops: list[Loop]

    # The block's tile -------------------------------------------------------------------------

    def _block_ranges(self) -> None:
        frame = self.frame
        segment = self.kernel.segment
        if segment is None:
            frame.line("unit = number")
        else:
            frame.line(f"segment, unit = t.divided(number, {self._units()})")
            frame.line(f"{frame.block_first(segment.index)} = i64(segment)")
        graded = self._graded()
        axes = [(g.axis, g.tile) for g in self.kernel.grid]
        if graded is not None and len(axes) > 1:
            self._graded_order(graded, axes)
            axes = [pair for pair in axes if pair[0] != graded]
        settled = paneled(frame, self.kernel, self.plan)
        axes = [pair for pair in axes if pair[0] not in settled]
        for position, (axis, tile) in reversed(list(enumerate(axes))):
            number = "unit"
            if position:
                count = self._tiles(axis, tile)
                number = frame.module.names.of("tile", f"{axis}_tile")
                frame.line(f"unit, {number} = t.divided(unit, {count})")
            scaled = f" * {tile}" if tile > 1 else ""
            frame.line(f"{frame.block_first(axis)} = i64({number}){scaled}")
        for axis in self.kernel.resident:
            frame.line(f"{frame.block_first(axis)} = i64(0)")

    def _tiles(self, axis: str, tile: int) -> str:
        return f"t.tiles({self.frame.parameter(Extent(axis))}, {tile})"

    def _graded(self) -> str | None:
        """Return the grid axis whose later tiles have more work, if one has."""
        for loop in self.loops:
            some = self._some(loop)
            if some is None:
                continue
            bounds = tile_bounds(some, loop.axis, self.consumer.builder)
            read = frozenset[str]().union(*map(walk.refs, bounds.high))
            for grid in self.kernel.grid:
                if f"{grid.axis}.last" in read:
                    return grid.axis
        return None

    def _graded_order(self, graded: str, axes: Sequence[tuple[str, int]]) -> None:
        """Number units so that heavy ones come first, and those that share operands together.

        The other axes' units go in sections whose looped operands fit in the L2 cache; within a
        section, tiles of the graded axis go from last to first.
        """
        frame = self.frame
        tile = dict(axes)[graded]
        others = " * ".join(self._tiles(a, n) for a, n in axes if a != graded)
        looped = [o for o in self.consumer.shared.rings if o.loop is not None]
        width = self.plan.width
        sizes = " + ".join(
            f"{frame.parameter(Extent(str(o.loop)))} * {o.tile.bytes // width(str(o.loop))}"
            for o in looped
        )
        before = frame.at(0)
        before.append(f"graded = i32({self._tiles(graded, tile)})")
        before.append(f"others = i32({others})")
        # Sections of one size: with a short last one, blocks would not end together.
        before.append(f"whole = f32({sizes or '0'}) * f32(others)")
        before.append(f"sections = i32(whole * f32({1 / _L2_BYTES})) + i32(1)")
        before.append("section = i32((others + sections - i32(1)) // sections)")
        frame.line("part, rest = t.divided(unit, i64(section) * i64(graded))")
        frame.line("held = t.smaller(i64(section), i64(others) - i64(part) * i64(section))")
        frame.line("tile, unit = t.divided(rest, held)")
        frame.line(f"{frame.block_first(graded)} = i64(graded - i32(1) - tile) * {tile}")
        frame.line("unit = i32(unit + i32(part * section))")

    # Loops ------------------------------------------------------------------------------------

    def _ends(self, loop: Loop) -> tuple[str, str]:
        """Write first index and end of a loop; return their variables."""
        frame, values = self.frame, self.consumer.values
        b = self.consumer.builder
        start, stop = (frame.module.names.fresh(f"{loop.axis}_{e}") for e in ("start", "stop"))
        size = frame.parameter(Extent(loop.axis))
        bounds = Bounds()
        some = self._some(loop)
        if some is not None:
            bounds = tile_bounds(self._of_block(some), loop.axis, b)
            if bounds.rest is not None and self.plan.unit == "wgmma":
                self.consumer.wanted[id(loop)] = self.consumer.scan.ask(loop.axis, bounds.rest)
        low, high = "i64(0)", size
        if bounds.low:
            first = values.value(greatest(bounds.low, b)).text
            low = f"w.larger({first}, 0) // {loop.tile} * {loop.tile}"
        if bounds.high:
            last = values.value(least(bounds.high, b)).text
            high = f"t.smaller({last} + 1, {size})"
        frame.line(f"{start} = {low}")
        frame.line(f"{stop} = {high}")
        if self.consumer.streams:
            # A unit has a tile, if only one of which no element takes part.
            frame.line(f"{stop} = w.larger({stop}, 1)")
            frame.line(f"{start} = t.smaller({start}, ({stop} - 1) // {loop.tile} * {loop.tile})")
        if self.kernel.segment is not None and self.kernel.segment.axis == loop.axis:
            self._share(loop, start, stop)
        return start, stop

    def _share(self, loop: Loop, start: str, stop: str) -> None:
        """Write which of a loop's tiles the block's segment has: as many as others, or one more."""
        frame = self.frame
        assert self.kernel.segment is not None
        index = self.kernel.segment.index
        parts, own = frame.parameter(Extent(index)), frame.block_first(index)
        count = f"i32(t.tiles(w.larger({stop} - {start}, 0), {loop.tile}))"
        frame.line(f"share, rest = t.divided({count}, {parts})")
        frame.line(f"before = {own} * i64(share) + t.smaller({own}, i64(rest))")
        frame.line(f"held = i64(share) + i64({own} < i64(rest))")
        frame.line(f"{start} = {start} + before * {loop.tile}")
        frame.line(f"{stop} = t.smaller({start} + held * {loop.tile}, {stop})")

    def _some(self, loop: Loop) -> Expr | None:
        """Return a test for tiles in which an element takes part, if one is known.

        It knows more than the loop's own: numbers that the whole unit reads, and summaries.
        """
        b = self.consumer.builder
        uses = [s for s in loop.body if isinstance(s, Fold | Contract) and loop.axis in s.over]
        conditions = dict.fromkeys(use.condition for use in uses)
        tests = [None if c is None else possible(c, b, self.consumer.knowledge) for c in conditions]
        known = [test for test in tests if test is not None]
        if len(known) < len(tests) or not known:
            return loop.some
        return b.disjunction(known)

    def _units(self) -> str:
        return " * ".join(self._tiles(g.axis, g.tile) for g in self.kernel.grid) or "i64(1)"

    def _of_block(self, some: Expr) -> Expr:
        """Return a test with the ends of the block's tile in place of the warp's."""
        for axis, tile in self.plan.rows:
            for end in ("first", "last"):
                if f"{axis}.{end}" in walk.refs(some):
                    self._define_end(axis, tile, end)
        names = {
            f"{axis}.{end}": f"{axis}.block.{end}"
            for axis, _ in self.plan.rows
            for end in ("first", "last")
        }
        for grid in self.kernel.grid:
            if grid.axis not in dict(self.plan.rows):
                for end in ("first", "last"):
                    if f"{grid.axis}.{end}" in walk.refs(some):
                        self._define_end(grid.axis, grid.tile, end)
                        names[f"{grid.axis}.{end}"] = f"{grid.axis}.block.{end}"
        single = [grid.axis for grid in self.kernel.grid if grid.tile == 1]
        for axis in single:
            if axis in some.type.axes:
                self._define_end(axis, 1, "first")

        def rule(node: Expr) -> Expr:
            if isinstance(node, Index) and node.axis in single:
                return Ref(f"{node.axis}.block.first", Type(I64))
            if isinstance(node, Load):
                return b.load(node.array, node.type.dtype, node.subscripts)
            return node

        b = self.consumer.builder
        return walk.rewrite(walk.rename(some, names), rule)

    def _interval(self, expr: Expr) -> tuple[str, str]:
        """Return text of the least and the greatest value of an index over the block's tile."""
        found = ends(expr, self.consumer.builder)
        assert found is not None
        values = self.consumer.values
        least, greatest = (values.value(self._of_block(end)).text for end in found)
        return least, greatest

    def _define_end(self, axis: str, tile: int, end: str) -> None:
        frame = self.frame
        first = frame.block_first(axis)
        name = f"{axis}.block.{end}"
        if frame.lookup(name) is not None:
            return
        if end == "first":
            frame.define(name, Value(first, (), "i64"))
            return
        variable = frame.module.names.fresh(f"{axis}_block_last")
        size = frame.parameter(Extent(axis))
        frame.line(f"{variable} = t.smaller({first} + {tile}, {size}) - 1")
        frame.define(name, Value(variable, (), "i64"))
