"""How each reduction begins, takes an element, and joins two partial results, as Numba text."""

from __future__ import annotations

from typing import TypeVar

from redlang.codegen.places import Places
from redlang.codegen.scalars import arithmetic, converted, number, spell
from redlang.ir import loops, walk
from redlang.ir.program import Apply, Expr, Monoid, Ref
from redlang.ir.types import BOOL, I64, DType

Part = TypeVar("Part")

FREE: dict[str, int] = {
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all", "count"), 0),
    # A block's product of mantissas in [1/2, 1) stays above 2^-97, within f32's normal numbers.
    "mantissa": 96,
}
"""Reductions whose elements may join in any order, and how many at most before that is scaled; 0
for any number."""


def begin(fold: loops.Fold, to: Places) -> None:
    """Write the results of a fold over nothing."""
    match fold.op:
        case "topk":
            values, *indices = fold.names
            assert fold.k is not None
            slot = to.names.fresh("slot")
            with to.writer.block(f"for {slot} in range({fold.k}):"):
                to.write(values, lowest(to.tree.types[values].dtype), slot)
                for name in indices:
                    to.write(name, "-1", slot)
        case "monoid":
            assert fold.monoid is not None
            for name, expr in zip(fold.names, fold.monoid.init, strict=True):
                to.write(name, to.typed(expr, to.tree.types[name].dtype))
        case _:
            dtypes = [to.tree.types[name].dtype for name in fold.names]
            for name, text in zip(fold.names, identities(fold.op, dtypes), strict=True):
                to.write(name, text)


def identities(op: str, dtypes: list[DType]) -> list[str]:
    """Return the neutral element of a reduction, one text for each of its results."""
    dtype = dtypes[0]
    match op:
        case "sum" | "count" | "any":
            return [number(0, dtype)]
        case "prod" | "all":
            return [number(1, dtype)]
        case "mantissa":
            return [number(0.5, dtype), "1"]
        case "max":
            return [lowest(dtype)]
        case "min":
            return [highest(dtype)]
        case "argmax":
            return [lowest(dtype), "-1"]
        case "argmin":
            return [highest(dtype), "-1"]
        case _:
            raise AssertionError(op)


def lowest(dtype: DType) -> str:
    """Return the identity of max."""
    if dtype.kind == "float":
        return number(float("-inf"), dtype)
    return number(0 if dtype.kind in ("uint", "bool") else -(2**63), dtype)


def highest(dtype: DType) -> str:
    """Return the identity of min."""
    if dtype.kind == "float":
        return number(float("inf"), dtype)
    return number({"uint": 2**64 - 1, "bool": 1}.get(dtype.kind, 2**63 - 1), dtype)


def fold(step: loops.Fold, to: Places) -> None:
    """Write how the current element joins the results so far."""
    to.writer.origin(step.values[0].span)
    match step.op:
        case "mantissa":
            _scaled_product(step, to)
        case op if op in FREE:
            _simple(step, to)
        case "argmax" | "argmin":
            _arg(step, to)
        case "topk":
            _top(step, to)
        case "monoid":
            _monoid(step, to)
        case _:
            raise AssertionError(step.op)


def _simple(step: loops.Fold, to: Places) -> None:
    (name,), (value,) = step.names, step.values
    dtype = to.tree.types[name].dtype
    if step.op == "sum" and step.condition is None and _is_product(value, dtype):
        assert isinstance(value, Apply)
        left, right = (to.typed(factor, dtype) for factor in value.arguments)
        to.write(name, f"sum_multiply_add({to.read(name)}, {left}, {right})")
        return
    if step.op in ("any", "all", "count"):
        text, kind = to.typed(value, BOOL), BOOL
    else:
        text, kind = to.typed(value, dtype), dtype
    if step.condition is not None:
        (identity,) = identities("any" if step.op == "count" else step.op, [kind])
        text = f"select({to.typed(step.condition, BOOL)}, {text}, {identity})"
    if step.op == "count":
        text = converted(text, BOOL, I64)
    to.write(name, joined(step.op, to.read(name), text, dtype))


def _is_product(value: Expr, dtype: DType) -> bool:
    return isinstance(value, Apply) and value.op == "mul" and value.type.dtype is dtype


def joined(op: str, left: str, right: str, dtype: DType) -> str:
    """Return two values of a reduction with one result, joined in an order that is free."""
    match op:
        case "sum" | "count":
            return f"sum_add({left}, {right})"
        case "prod":
            return f"product_multiply({left}, {right})"
        case "max" | "min":
            if dtype is BOOL:
                return f"logical_{'or' if op == 'max' else 'and'}({left}, {right})"
            return f"{op}imum({left}, {right})"
        case "any" | "all":
            return f"logical_{'or' if op == 'any' else 'and'}({left}, {right})"
        case _:
            raise AssertionError(op)


def _scaled_product(step: loops.Fold, to: Places) -> None:
    """Multiply mantissas in [1/2, 1) and add exponents; `join` brings the product into range."""
    mantissa, power = step.names
    dtype = to.tree.types[mantissa].dtype
    text = to.typed(step.values[0], dtype)
    if step.condition is not None:
        text = f"select({to.typed(step.condition, BOOL)}, {text}, {number(1, dtype)})"
    value = to.keep(text)
    if to.spot(mantissa) in to.standing_in:
        to.write(mantissa, f"product_multiply({to.read(mantissa)}, fraction({value}))")
        to.write(power, f"{to.read(power)} + exponent({value})")
    else:
        join(step, [f"fraction({value})", f"exponent({value})"], to)


def join(step: loops.Fold, parts: list[str], to: Places) -> None:
    """Write how the result of a part of a fold's elements joins its results, in any order."""
    if step.op == "mantissa":
        mantissa, power = step.names
        product = to.keep(f"{to.read(mantissa)} * {parts[0]}")
        to.write(power, f"{to.read(power)} + {parts[1]} + exponent({product})")
        to.write(mantissa, f"fraction({product})")
        return
    (name,), (part,) = step.names, parts
    to.write(name, joined(step.op, to.read(name), part, step.types[0].dtype))


def _arg(step: loops.Fold, to: Places) -> None:
    """Keep the first of the best values; most elements do nothing."""
    best, place = step.names
    value = to.keep(to.typed(step.values[0], to.tree.types[best].dtype))
    test = f"{rank(step.op)}({value}, {to.read(best)}, {to.read(place)})"
    if step.condition is not None:
        test = f"logical_and({to.typed(step.condition, BOOL)}, {test})"
    if to.innermost is not None and to.innermost != to.index(step.over[-1]):
        # Neighbours belong to other results: choices make a vector of them, branches do not.
        ahead = to.keep(test)
        place_text = row_major_index(step.over, to)
        to.write(best, f"select({ahead}, {value}, {to.read(best)})")
        to.write(place, f"select({ahead}, {place_text}, {to.read(place)})")
        return
    with to.writer.block(f"if {test}:"):
        to.write(best, value)
        to.write(place, row_major_index(step.over, to))


def rank(op: str) -> str:
    """Return the test of whether an element comes before an entry of a search."""
    return "ranks_below" if op == "argmin" else "ranks_above"


def row_major_index(over: tuple[str, ...], to: Places) -> str:
    """Return the index of the current element, row-major over the whole extents of `over`."""
    text = ""
    for axis in over:
        text = f"({text}) * {to.size(axis)} + {to.index(axis)}" if text else to.index(axis)
    return text


def _top(step: loops.Fold, to: Places) -> None:
    """Insert the current element into a sorted list if it ranks above the last entry."""
    values, places = step.names[0], step.names[1]
    value = to.keep(to.typed(step.values[0], to.tree.types[values].dtype))
    place = to.keep(row_major_index(step.over, to))
    condition = None if step.condition is None else to.typed(step.condition, BOOL)
    assert step.k is not None
    _insert(values, places, value, place, condition, step.k, to)


def _insert(
    values: str,
    places: str,
    value: str,
    place: str,
    condition: str | None,
    k: int,
    to: Places,
) -> None:
    last = str(k - 1)
    test = f"ranks_above({value}, {to.read(values, last)}, {to.read(places, last)})"
    if condition is not None:
        test = f"logical_and({condition}, {test})"
    with to.writer.block(f"if {test}:"):
        slot = to.names.fresh("slot")
        before = f"{slot} - 1"
        to.writer.line(f"{slot} = {last}")
        above = f"ranks_above({value}, {to.read(values, before)}, {to.read(places, before)})"
        with to.writer.block(f"while {slot} > 0 and {above}:"):
            to.write(values, to.read(values, before), slot)
            to.write(places, to.read(places, before), slot)
            to.writer.line(f"{slot} -= 1")
        to.write(values, value, slot)
        to.write(places, place, slot)


def lifted(step: loops.Fold, to: Places) -> tuple[list[str], list[DType]]:
    """Return the state of the current element alone, and the types of its parts."""
    assert step.monoid is not None
    elements = {f"x.{i}": value for i, value in enumerate(step.values)}
    parts = [walk.substitute(expr, elements) for expr in step.monoid.lift]
    return [to.keep(spell(expr, to)) for expr in parts], [expr.type.dtype for expr in parts]


def combined(
    step: loops.Fold | loops.Combine, states: tuple[list[str], list[str]], to: Places
) -> list[str]:
    """Return the combination of two states of a monoid whose parts have their own types."""
    assert step.monoid is not None
    dtypes = [to.tree.types[name].dtype for name in step.names]
    return _combined(step.monoid, states[0], dtypes, states[1], dtypes, to)


def _monoid(step: loops.Fold, to: Places) -> None:
    """Lift the current element and combine, in order."""
    monoid = step.monoid
    assert monoid is not None
    parts, dtypes = lifted(step, to)
    own = [to.tree.types[name].dtype for name in step.names]
    new = _combined(monoid, list(map(to.read, step.names)), own, parts, dtypes, to)
    if step.condition is not None:
        shown = to.keep(to.typed(step.condition, BOOL))
        new = [
            f"select({shown}, {text}, {to.read(name)})"
            for name, text in zip(step.names, new, strict=True)
        ]
    new = [to.keep(text) for text in new]
    for name, text in zip(step.names, new, strict=True):
        to.write(name, text)


def _combined(
    monoid: Monoid,
    left: list[str],
    own: list[DType],
    right: list[str],
    dtypes: list[DType],
    to: Places,
) -> list[str]:
    """Return the combination of two states, given by the texts and types of their parts."""
    env = _MonoidSetting(to, {"a": left, "b": right}, {"a": own, "b": dtypes})
    return [
        to.keep(converted(spell(expr, env), expr.type.dtype, dtype))
        for expr, dtype in zip(monoid.combine, own, strict=True)
    ]


class _MonoidSetting:
    """The emitter, with `a.0, ...` and `b.0, ...` standing for two states."""

    def __init__(
        self, to: Places, states: dict[str, list[str]], dtypes: dict[str, list[DType]]
    ) -> None:
        self.values, self.dtypes = _numbered(states), _numbered(dtypes)
        self.index, self.size, self.scalar = to.index, to.size, to.scalar
        self.load, self.keep = to.load, to.keep

    def ref(self, ref: Ref) -> str:
        """Return a part of one of the states."""
        return converted(self.values[ref.name], self.dtypes[ref.name], ref.type.dtype)


def _numbered(parts: dict[str, list[Part]]) -> dict[str, Part]:
    """Return parts of states by their names, `a.0` and so on."""
    return {f"{state}.{i}": part for state, these in parts.items() for i, part in enumerate(these)}


def combine(step: loops.Combine, to: Places) -> None:
    """Write how two partial results are joined; the left one holds the earlier elements."""
    names, left, right = step.names, step.left, step.right
    match step.op:
        case "topk":
            _merge_lists(step, to)
        case "monoid":
            states = [to.keep(to.read(n)) for n in left], [to.keep(to.read(n)) for n in right]
            for name, text in zip(names, combined(step, states, to), strict=True):
                to.write(name, text)
        case "argmax" | "argmin":
            parts = [to.keep(to.read(name)) for name in (*left, *right)]
            ahead = f"{rank(step.op)}({parts[2]}, {parts[0]}, {parts[1]})"
            take = to.keep(f"logical_and({parts[3]} >= 0, {ahead})")
            for name, a, b in zip(names, parts[:2], parts[2:], strict=True):
                to.write(name, f"select({take}, {b}, {a})")
        case "mantissa":
            product = to.keep(f"{to.read(left[0])} * {to.read(right[0])}")
            to.write(names[1], f"{to.read(left[1])} + {to.read(right[1])} + exponent({product})")
            to.write(names[0], f"fraction({product})")
        case "sum" | "count" | "prod":
            # In the order that the plan gives: this one is not free.
            dtype = to.tree.types[names[0]].dtype
            both = to.read(left[0]), to.read(right[0])
            to.write(names[0], arithmetic("mul" if step.op == "prod" else "add", *both, dtype))
        case _:
            dtype = to.tree.types[names[0]].dtype
            to.write(names[0], joined(step.op, to.read(left[0]), to.read(right[0]), dtype))


def _merge_lists(step: loops.Combine, to: Places) -> None:
    """Copy the left list, then insert the entries of the right one in order."""
    assert step.k is not None
    assert step.right != step.names
    if step.left != step.names:
        slot = to.names.fresh("slot")
        with to.writer.block(f"for {slot} in range({step.k}):"):
            for name, source in zip(step.names, step.left, strict=True):
                to.write(name, to.read(source, slot), slot)
    values, places = step.names[0], step.names[1]
    slot = to.names.fresh("slot")
    with to.writer.block(f"for {slot} in range({step.k}):"):
        place = to.keep(to.read(step.right[1], slot))
        value = to.keep(to.read(step.right[0], slot))
        _insert(values, places, value, place, f"{place} >= 0", step.k, to)
