"""The text of reductions over pairs: one function, of what is joined so far and of a pair."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.matrix_pairs import Paired
from redlang.codegen.cuda.matrix_text import tile_text
from redlang.codegen.cuda.values import Operands
from redlang.ir import walk
from redlang.ir.program import Expr
from redlang.ir.types import compute_type
from redlang.schedule.pairings import NEUTRAL

if TYPE_CHECKING:
    from redlang.codegen.cuda.matrix_copies import Operand
    from redlang.codegen.cuda.portable_unit import PortableUnit

STEP = 8
"""Elements of a reduced axis that are taken at a time."""
_JOINED = {"sum": "{} + {}", "max": "maximum({}, {})", "min": "minimum({}, {})"}


def reduce_pairs(unit: PortableUnit, pairs: Paired) -> None:
    """Write a reduction over pairs."""
    frame, plan = unit.frame, unit.matrix
    step, shared = _step(unit, pairs)
    parts = [str(plan.width(pairs.column))]
    parts += [_side(unit, pairs.lefts), _side(unit, pairs.rights)]
    parts.append(str(NEUTRAL[pairs.fold.op]))
    if pairs.code != "f32":
        parts.append(f'code="{pairs.code}"')
    if frame.classes.multiple(pairs.over) % STEP == 0:
        parts.append("whole=True")
    parts.append(f"halves={plan.halves}, lanes={plan.lanes}")
    parts.append(f"neighbours={plan.neighbours(pairs.column)}")
    if not unit.rows_first(pairs.column):
        parts.append("rows_first=False")
    make = frame.module.declare("pairs", f"w.pairs({step}, w.Pairs({', '.join(parts)}))")
    given = [unit.left_place(operand)[0] for operand in pairs.lefts]
    given += [f"w.opaque({unit.place(operand)})" for operand in pairs.rights]
    left = f"{frame.parameter(Extent(pairs.over))} - {frame.first(pairs.over)}"
    if pairs.lefts[0].loop == pairs.over:
        left = f"t.smaller({left}, i64({plan.width(pairs.over)}))"
    given += ["lane", f"t.clamped({left})", *shared]
    variable = frame.module.names.of("value", pairs.name)
    unit.variables.add(variable)
    frame.line(f"{variable} = {make}({', '.join(given)})")
    frame.define(pairs.name, Value(variable, frame.tile_axes(pairs.type.axes), pairs.code))


def _step(unit: PortableUnit, pairs: Paired) -> tuple[str, list[str]]:
    """Return the function that joins a pair, and what it is given beside elements."""
    frame = unit.frame
    arrays = [operand.map.array for operand in (*pairs.lefts, *pairs.rights)]
    codes = [compute_type(frame.memories[array].dtype).name for array in arrays]
    elements = zip(pairs.elements, codes, strict=True)
    frame.stand_ins = {name: Value(name, (), code) for name, code in elements}
    operands = Operands()
    so_far = operands.name(Value("so_far", (), pairs.code))
    for value in frame.stand_ins.values():
        operands.name(value)
    own = len(operands.values)
    bare = unit.values.operand_form(walk.rewrite(pairs.value, _of_one), (), operands)
    frame.stand_ins = {}
    (text,), setting = unit.values.spelled([bare], operands)
    joined = _JOINED[pairs.fold.op].format(so_far, text)
    arguments = [(name, value.code) for name, value in operands.values.items()]
    base = f"{pairs.fold.op}_pair"
    step = frame.module.function(base, [pairs.code], arguments, setting.lines, [joined])
    return step, [value.text for value in [*operands.values.values()][own:]]


def _of_one(expr: Expr) -> Expr:
    """Return an expression without its axes: it is a function of one element of each side."""
    return replace(expr, type=replace(expr.type, axes=()))


def _side(unit: PortableUnit, operands: tuple[Operand, ...]) -> str:
    memories = unit.frame.memories
    pairs = [
        f'("{memories[operand.map.array].dtype}", {tile_text(operand.tile)}),'
        for operand in operands
    ]
    return f"({' '.join(pairs)})"
