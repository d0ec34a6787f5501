"""How reductions combine, in forms that LLVM's vectoriser recognises.

`acc = sum_add(acc, f(load(x, i)))` in a loop becomes several vector accumulators, because the
addition alone carries the `reassoc` flag; nothing else in the kernel is reassociated. The flag
stands on a reduction's own additions, whose order the language leaves open.
"""

from __future__ import annotations

from redlang.targets.llvm import Value

_FREE_ORDER = ("reassoc",)


def sum_add(total: Value, value: Value) -> Value:
    """Return total + value, in a sum whose order is free."""
    if not total.is_float:
        return total + value
    return total.wrap(total.builder.fadd(total.raw, value.raw, flags=_FREE_ORDER))


def sum_multiply_add(total: Value, left: Value, right: Value) -> Value:
    """Return total + left * right, fused where the machine can, in a sum whose order is free."""
    if not total.is_float:
        return total + left * right
    return left.call("fmuladd", right, total, flags=_FREE_ORDER)


def product_multiply(total: Value, value: Value) -> Value:
    """Return total * value, in a product whose order is free."""
    if not total.is_float:
        return total * value
    return total.wrap(total.builder.fmul(total.raw, value.raw, flags=_FREE_ORDER))
