"""Products of partly absent tiles: what is absent must not show, not even next to NaN.

An absent element of a computed operand is 0, and 0 times NaN is NaN. So tiles of the other operand
that meet absent elements pass through *checkers*, idle warps beside the producer: they put 0 in the
place of elements that are not finite, and leave a note. Where there is one, consumers look the
elements up in global memory and add their products where they take part: an infinity times a weight
is one of either sign, or NaN. Whole tiles are passed on untouched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Address
from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_memory import Ring
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_text import unsuited
from redlang.schedule.fragments import WARP
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.product_plans import BYTES


def checked_operands(works: Sequence[LoopWork]) -> dict[Operand, Multiply]:
    """Return the operands that meet absent elements, each with a product that reads it.

    Raises:
        UnsuitedError: One is read under several conditions.
    """
    found: dict[Operand, Multiply] = {}
    for work in works:
        for product in work.products:
            for operand in (product.left, product.right):
                if operand in found:
                    other = found[operand].contract.condition
                    if other != product.contract.condition:
                        raise unsuited(f"{operand.name} is read under several conditions")
            if product.contract.condition is not None:
                if product.left is not None or product.right.loop is None:
                    raise unsuited("a masked product of copied operands")
                wide = product.right.wide
                if wide is None:
                    found[product.right] = product
                elif wide.source not in BYTES:
                    raise unsuited(f"a masked product of {wide.source}")
    for work in works:
        for product in work.products:
            if product.contract.condition is None and {product.left, product.right} & set(found):
                raise unsuited("an operand of masked and unmasked products")
    return found


def pass_on(frame: MatrixFrame, ring: Ring, plan: MatrixPlan, whole: str | None) -> list[str]:
    """Return lines with which checkers pass one tile on.

    Args:
        frame: The kernel's frame.
        ring: The operand's.
        plan: The kernel's plan.
        whole: The variable that says whether the whole tile takes part; None if that is unknown.
    """
    tile = ring.operand.tile
    dtype = frame.memories[ring.operand.map.array].dtype
    lanes = plan.checkers * WARP
    make = frame.module.declare("checked", f'w.checked("{dtype}", {tile.bytes}, {lanes})')
    call = f"{make}({ring.tile()}, checker, {ring.note()})"
    lines = [f"w.barrier_wait({ring.full_barrier()}, {ring.parity})"]
    lines += [call] if whole is None else [f"if not {whole}:", f"    {call}"]
    lines.append(f"w.barrier_arrive({ring.checked_barrier()}, lead)")
    return [*lines, *ring.advance()]


def address(frame: MatrixFrame, operand: Operand, firsts: Mapping[str, str]) -> str:
    """Return text of the address of an operand's tile in global memory.

    Args:
        frame: The kernel's frame.
        operand: The operand.
        firsts: Its first index along each axis.
    """
    array = operand.map.array
    terms = [frame.parameter(Address(array))]
    size = frame.memories[array].dtype.bytes
    terms += [f"{firsts[a]} * {step(frame, array, a)} * {size}" for a in operand.map.dims]
    return " + ".join(terms)


def step(frame: MatrixFrame, array: str, axis: str) -> str:
    """Return text of a stride in elements."""
    known = frame.classes.arrays[array].strides.get(axis)
    return f"i64({known})" if known is not None else frame.parameter(Stride(array, axis))


def spoil(
    frame: MatrixFrame, product: Multiply, plan: MatrixPlan, value: Value, signs: Value
) -> str:
    """Return the line that adds what is not finite and takes part to accumulators.

    Args:
        frame: The kernel's frame.
        product: The product.
        plan: The kernel's plan.
        value: Its accumulators.
        signs: What each element of the computed operand does to the sign of an infinity.
    """
    array = product.right.map.array
    dtype = frame.memories[array].dtype
    columns, contracted = plan.width(product.column), plan.width(product.over)
    firsts = {axis: frame.first(axis) for axis in product.right.map.dims}
    first = address(frame, product.right, firsts)
    rows_first = [
        all(frame.order.index(row) < frame.order.index(axis) for row, _ in plan.rows)
        for axis in (product.column, product.over)
    ]
    parts = [str(columns), str(contracted), *map(str, rows_first)]
    if plan.unit != "wgmma":
        widths = map(plan.neighbours, (product.column, product.over))
        parts += map(str, (plan.halves, plan.lanes, *widths))
    text = f'w.spoiled("{dtype}", w.Fragment({", ".join(parts)}))'
    make = frame.module.declare("spoiled", text)
    steps = ", ".join(step(frame, array, axis) for axis in (product.over, product.column))
    left = ", ".join(
        f"t.clamped({frame.parameter(Extent(axis))} - {firsts[axis]})"
        for axis in (product.over, product.column)
    )
    return f"{value.text} = {make}({value.text}, {signs.text}, {first}, {steps}, {left})"
