"""Loops → a CUDA kernel over matrix tiles for every GPU from 8.0 on: warps that copy and multiply.

There is no producer: all threads of a block start the copies of a tile some tiles ahead, and one
barrier a tile says both that its elements are there and that the slot of the tile before is free.
Products are a warp's own, by `mma` or by plain multiply-adds. Everything else (operands, layouts,
masks, bounds, element work) is what Hopper's kernels do.
"""

from __future__ import annotations

from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrices import Emitter, operands_of
from redlang.codegen.cuda.matrix_checks import checked_operands
from redlang.codegen.cuda.matrix_memory import share
from redlang.codegen.cuda.matrix_text import MatrixText, unsuited
from redlang.codegen.cuda.portable_copies import copy_line, source_line
from redlang.codegen.cuda.portable_unit import PortableUnit, scratch_tile
from redlang.ir.loops import Kernel, Loops
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import MatrixPlan

_SAME_BLOCK = "i32(w.opaque(cuda.blockIdx.x))"


def emit(loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> MatrixText:
    """Return the text of one kernel; arguments and errors as `matrices.emit`."""
    return _Emitter(loops, kernel, plan, classes).run()


class _Emitter(Emitter):
    """Writes one kernel whose warps do everything."""

    consumer_type = PortableUnit
    consumer: PortableUnit

    def run(self) -> MatrixText:
        """Write the kernel."""
        frame, consumer = self.frame, self.consumer
        works = list(self.works.values())
        operands = list(dict.fromkeys(operands_of(works)))
        checked = checked_operands(works)
        consumer.works = self.works
        consumer.block_whole = self._whole
        consumer.last_loop = self.loops[-1]
        scratch = 0
        if self.plan.unit == "fma":
            late = [product for work in works for product in work.late]
            tiles = [scratch_tile(self.plan, product) for product in late]
            scratch = max((tile.bytes for tile in tiles), default=0)
        warps = self.plan.threads // WARP
        names = frame.module.names
        consumer.shared = share(operands, self.plan.stages, 1, scratch * warps, (), names)
        if any(o.tile.inner * o.tile.size < o.tile.span for o in operands):
            raise unsuited("lines shorter than their swizzle")
        consumer.checked = checked
        with frame.scope([]) as constants, frame.scope([]) as unit:
            self._block_ranges()
            again = [f"number = {_SAME_BLOCK}", *unit.lines]
            consumer.ends = {id(loop): self._ends(loop) for loop in self.loops}
            with frame.scope(consumer.unit_axes()) as body:
                consumer.ranges()
                # Where the tile is, found anew after the loops: no registers hold it in them.
                consumer.after_loops = [*again, *body.lines]
                for operand in operands:
                    if operand.loop is None:
                        ring = consumer.shared.rings[operand]
                        frame.line(source_line(frame, ring, "source"))
                        place = f"shared + {ring.start}"
                        frame.line(copy_line(frame, ring, self.plan, place, "source"))
                if self.plan.held:
                    frame.line("w.pieces_commit()")
                consumer.run(self.kernel.body)
        lines = [
            "shared = w.shared_base()",
            "thread = i32(cuda.threadIdx.x)",
            "lane = i32(thread & i32(31))",
            "warp = w.warp_uniform(i32(thread >> i32(5)))",
            *([f"scratch = shared + {consumer.shared.staging} + warp * {scratch}"] * bool(scratch)),
            *constants.lines,
            *self._each_unit(unit.lines, body.lines),
        ]
        return self._written(lines)
