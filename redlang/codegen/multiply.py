"""A matrix product as Numba text: a call for two axes and the depth, loops over all other axes."""

from __future__ import annotations

from redlang.codegen.places import Places
from redlang.codegen.products import product_axes
from redlang.ir import loops
from redlang.ir.program import Expr, Index, Load, Ref


def write_product(contract: loops.Contract, at: Places) -> None:
    """Write a matrix product, with loops over all axes but one of rows, columns and depth."""
    at.writer.origin(contract.left.span)
    axes = product_axes(contract)

    def free(group: tuple[str, ...]) -> list[str]:
        return [axis for axis in group if axis not in at.indices]

    rows, columns, depth = free(axes.rows), free(axes.columns), free(contract.over)
    looped = [*free(axes.batch), *rows[:-1], *columns[:-1], *depth[:-1]]
    matrix = tuple(group[-1] if group else None for group in (rows, columns, depth))
    started = ["True"] if contract.accumulate else []
    _loops(contract, looped, matrix, started, at)


def _loops(
    contract: loops.Contract,
    looped: list[str],
    matrix: tuple[str | None, ...],
    started: list[str],
    at: Places,
) -> None:
    """Write loops over `looped` around the call; `started` says when to add to the result."""
    if looped:
        axis, *rest = looped
        current, index = at.range_of(axis), at.names.fresh(axis)
        if axis in contract.over:
            started = [*started, f"{index} > {current.first}"]
        with at.inside(axis, index, current.first, current.stop):
            _loops(contract, rest, matrix, started, at)
        return
    rows, columns, depth = matrix
    lengths = ["1" if axis is None else at.range_of(axis).length for axis in matrix]
    left = _operand(contract.left, rows, depth, at)
    right = _operand(contract.right, depth, columns, at)
    target = _operand(Ref(contract.name, contract.type), rows, columns, at)
    add = "True" if "True" in started else " or ".join(started) or "False"
    parts = [*lengths, *left, *right, *target[:2], add, "to_u64(space)"]
    at.writer.line(f"gemm({', '.join(parts)})")


def _operand(operand: Expr, row: str | None, column: str | None, at: Places) -> list[str]:
    """Return a pointer to an operand's first element and its strides along two axes."""
    if isinstance(operand, Load):
        return _array_operand(operand, row, column, at)
    assert isinstance(operand, Ref)
    terms = []
    strides = {row: "0", column: "0"}
    pointer = at.buffer(operand.name)
    for axis, inner in at.layout(operand.name):
        if axis in strides:
            strides[axis] = " * ".join(inner) or "1"
        else:
            first = at.range_in(operand.name, axis).first
            terms.append(" * ".join([f"({at.index(axis)} - {first})", *inner]))
    base = f"offset({pointer}, {' + '.join(terms)})" if terms else pointer
    return [base, strides[row], strides[column]]


def _array_operand(load: Load, row: str | None, column: str | None, at: Places) -> list[str]:
    strides = {row: "0", column: "0"}
    here = {}
    for axis, part in zip(at.axes[load.array], load.subscripts, strict=True):
        assert isinstance(part, Index)
        if part.axis in strides:
            strides[part.axis] = at.stride(load.array, axis)
            here[axis] = at.range_of(part.axis).first
        else:
            here[axis] = at.index(part.axis)
    terms = at.terms(load.array, here).values()
    pointer = at.array(load.array)
    base = f"offset({pointer}, {' + '.join(terms)})" if terms else pointer
    return [base, strides[row], strides[column]]
