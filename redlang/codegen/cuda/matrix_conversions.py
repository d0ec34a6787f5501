"""Operands of 8 bits: warps beside the producer make tiles of them that products can read.

Copies bring such an operand as it is stored, in half the bytes. *Converters*, the warps that check
tiles where a mask asks for that, read a tile, leave it in 16 bits in another ring, and give it back
to the producer; consumers wait for the other ring as for any operand's. So a tile is converted
while the one before is multiplied.
"""

from __future__ import annotations

from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_memory import SharedPlan
from redlang.codegen.cuda.matrix_text import tile_text, unsuited
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import MatrixPlan


def convert(
    frame: MatrixFrame, shared: SharedPlan, operand: Operand, plan: MatrixPlan
) -> list[str]:
    """Return lines with which converters make one tile that products read.

    Args:
        frame: The kernel's frame.
        shared: Its shared memory.
        operand: What is converted.
        plan: The kernel's plan.

    Raises:
        UnsuitedError: The plan has no converters.
    """
    narrow, made, wide = shared.narrow[operand], shared.rings[operand], operand.wide
    assert wide is not None
    if not plan.converts:
        raise unsuited(f"{operand.name} is to be converted")
    text = f'"{wide.source}", "{wide.dtype}", {tile_text(narrow.shape)}, {tile_text(made.shape)}'
    text += f", {wide.width}, {plan.checkers * WARP}"
    make = frame.module.declare("widened", f"w.widened({text})")
    return [
        f"w.barrier_wait({narrow.full_barrier()}, {narrow.parity})",
        f"w.barrier_wait({made.empty_barrier()}, {made.parity} ^ i32(1))",
        f"{make}(w.opaque({narrow.tile()}), w.opaque({made.tile()}), u32(checker))",
        "w.shared_written()",
        # The lane that arrives speaks for its warp.
        "w.warp_barrier()",
        f"w.barrier_arrive({made.full_barrier()}, lead)",
        f"w.barrier_arrive({narrow.empty_barrier()}, lead)",
        *narrow.advance(),
        *made.advance(),
    ]
