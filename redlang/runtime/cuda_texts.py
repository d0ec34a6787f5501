"""The text of each kind of plan; what writes it is loaded when the first of its kind is made."""

from __future__ import annotations

from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.codegen.cuda.matrix_text import MatrixText
from redlang.ir.loops import Kernel, Loops
from redlang.schedule.parts import Part


def texts_of(
    loops: Loops, kernels: list[Kernel], part: Part, classes: Classes
) -> list[KernelText | MatrixText]:
    """Return the texts of one part: matrix tiles where they suit it, element tiles for the rest."""
    if part.matrix is not None:
        if part.matrix.unit == "wgmma":
            from redlang.codegen.cuda.matrices import emit as emit_matrix  # noqa: PLC0415
        else:
            from redlang.codegen.cuda.portable import emit as emit_matrix  # noqa: PLC0415
        from redlang.codegen.cuda.matrix_merge import emit_merge  # noqa: PLC0415

        found: list[KernelText | MatrixText] = []
        swept = emit_matrix(loops, kernels[0], part.matrix, classes)
        found += [swept] if swept.before is None else [swept.before, swept]
        found += [emit_merge(loops, merge, part.matrix, classes) for merge in kernels[1:]]
        return found
    from redlang.codegen.cuda.by_class import emit_by_class  # noqa: PLC0415
    from redlang.codegen.cuda.merging import emit_segments  # noqa: PLC0415
    from redlang.codegen.cuda.resident import emit  # noqa: PLC0415

    if len(kernels) == 2:
        sweep, merge = kernels
        if part.classes is not None:
            return [*emit_by_class(loops, sweep, merge, part.threads, classes, part.classes)]
        across = part.across
        return [emit_segments(loops, sweep, merge, part.threads, classes, across_blocks=across)]
    return [emit(loops, kernels[0], part.threads, classes)]
