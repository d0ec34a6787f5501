"""Typed constructors for expressions, and the typing rules that they apply.

A `Builder` knows the kernel's order of axes, so that the same expression always has the same type
however it was put together. It never simplifies: what a user wrote is what gets computed, and a
`0 * x` that vanished here would hide a NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from redlang.ir import walk
from redlang.ir.operators import OPERATORS, SIGNED, Rule
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Monoid,
    Program,
    Reduce,
    Ref,
    Scalar,
    Size,
)
from redlang.ir.types import BOOL, F32, F64, I64, U64, DType, Type, compute_type
from redlang.source import NOWHERE, Span
from redlang.values import dataclass

Operand: TypeAlias = Expr | bool | int | float
"""An expression, or a Python number that becomes a weak literal."""


def promote(types: Sequence[Type]) -> tuple[DType, bool]:
    """Return the compute type in which values of `types` meet, and whether it stays weak.

    Strong floats decide (f64 if there is one), then weak floats, then integers: u64 only where
    every strong integer is u64. Truth values count as integers, and integers never widen a float.
    """
    strong = [type_.dtype for type_ in types if not type_.weak]
    weak = [type_.dtype for type_ in types if type_.weak]
    for dtypes, stays_weak in ((strong, False), (weak, True)):
        floats = {dtype for dtype in dtypes if dtype.kind == "float"}
        if floats:
            return (F64 if F64 in floats else F32), stays_weak
    integers = {dtype for dtype in strong or weak if dtype is not BOOL}
    return (U64 if integers == {U64} else I64), not strong


def computed(op: str, dtype: DType) -> DType:
    """Return the type in which `op` computes where its operands meet in `dtype`."""
    return I64 if dtype is U64 and op in SIGNED else dtype


def literal(
    value: bool | int | float, dtype: DType | None = None, *, span: Span = NOWHERE
) -> Literal:
    """Return a literal: weak, of the type that its kind has, or as `dtype` says."""
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F32
    if dtype.kind == "float":
        value = float(value)
    return Literal(value, Type(dtype, weak=True), span)


def ref(name: str, type_: Type, *, span: Span = NOWHERE) -> Ref:
    """Return a reference to a definition, state or step of this type."""
    return Ref(name, replace(type_, weak=False), span)


def same_type(a: Type, b: Type) -> bool:
    """Return whether two types agree in everything but weakness."""
    return replace(a, weak=False) == replace(b, weak=False)


@dataclass(frozen=True, slots=True)
class Builder:
    """Constructors for expressions of one kernel.

    Attributes:
        order: The kernel's axes in order.
    """

    order: tuple[str, ...]

    @staticmethod
    def of(program: Program) -> Builder:
        """Return the builder for a program's axes."""
        return Builder(tuple(axis.name for axis in program.axes))

    def union(self, groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
        """Return the axes of all groups in the kernel's order.

        Raises:
            ValueError: An axis is not the kernel's.
        """
        wanted = frozenset[str]().union(*groups)
        if not wanted.issubset(self.order):
            raise ValueError(f"axes {sorted(wanted - set(self.order))} are not among {self.order}")
        return tuple(axis for axis in self.order if axis in wanted)

    def index(self, axis: str, *, span: Span = NOWHERE) -> Index:
        """Return the index along `axis`."""
        return Index(axis, Type(I64, self.union([[axis]]), weak=True), span)

    def size(self, axis: str, *, span: Span = NOWHERE) -> Size:
        """Return the extent of `axis`."""
        self.union([[axis]])
        return Size(axis, Type(I64, weak=True), span)

    def load(
        self,
        array: str,
        dtype: DType,
        subscripts: Sequence[Operand],
        *,
        guarded: Sequence[bool] | None = None,
        span: Span = NOWHERE,
    ) -> Load:
        """Return an element of an array whose storage type is `dtype`."""
        parts = tuple(map(as_expr, subscripts))
        guards = tuple(guarded) if guarded is not None else (False,) * len(parts)
        absent = any(guards) or any(part.type.absent for part in parts)
        axes = self.union(part.type.axes for part in parts)
        return Load(array, parts, guards, Type(compute_type(dtype), axes, absent), span)

    def apply(self, op: str, *arguments: Operand, span: Span = NOWHERE) -> Apply:
        """Return `op` applied to `arguments`, which are brought to a common type first.

        Raises:
            ValueError: The operator is unknown or takes another number of arguments.
        """
        operator = OPERATORS.get(op)
        if operator is None or operator.arity != len(arguments):
            raise ValueError(f"no operator {op!r} of {len(arguments)} arguments")
        parts = tuple(map(as_expr, arguments))
        axes = self.union(part.type.axes for part in parts)
        absent = any(part.type.absent for part in parts)
        parts, dtype, weak = _common(op, operator.rule, parts)
        return Apply(op, parts, Type(dtype, axes, absent, weak), span)

    def add(self, left: Operand, right: Operand) -> Apply:
        """Return `left + right`."""
        return self.apply("add", left, right)

    def sub(self, left: Operand, right: Operand) -> Apply:
        """Return `left - right`."""
        return self.apply("sub", left, right)

    def mul(self, left: Operand, right: Operand) -> Apply:
        """Return `left * right`."""
        return self.apply("mul", left, right)

    def div(self, left: Operand, right: Operand) -> Apply:
        """Return `left / right`."""
        return self.apply("div", left, right)

    def neg(self, operand: Operand) -> Apply:
        """Return `-operand`."""
        return self.apply("neg", operand)

    def exp(self, operand: Operand) -> Apply:
        """Return `exp(operand)`."""
        return self.apply("exp", operand)

    def where(self, condition: Operand, then: Operand, otherwise: Operand) -> Apply:
        """Return `where(condition, then, otherwise)`."""
        return self.apply("where", condition, then, otherwise)

    def conjunction(self, conditions: Iterable[Expr | None]) -> Expr | None:
        """Return the conditions joined by `and`, each once; None stands for "always"."""
        joined: Expr | None = None
        seen: list[Expr] = []
        for condition in conditions:
            if condition is None or condition in seen:
                continue
            seen.append(condition)
            joined = condition if joined is None else self.apply("and", joined, condition)
        return joined

    def disjunction(self, conditions: Iterable[Expr]) -> Expr | None:
        """Return the conditions joined by `or`, each once; None for none."""
        joined: Expr | None = None
        for condition in dict.fromkeys(conditions):
            joined = condition if joined is None else self.apply("or", joined, condition)
        return joined

    def cast(self, operand: Operand, to: DType, *, span: Span = NOWHERE) -> Cast:
        """Return the cast that a user writes as `to(operand)`: it rounds, and is kept."""
        part = as_expr(operand)
        type_ = replace(part.type, dtype=compute_type(to), weak=False)
        return Cast(part, to, type_, explicit=True, span=span)

    def convert(self, operand: Operand, dtype: DType) -> Expr:
        """Return `operand` in the compute type `dtype`, by an implicit cast if it must be."""
        return convert(as_expr(operand), dtype)

    def mask(self, condition: Expr, operand: Expr, *, span: Span = NOWHERE) -> Mask:
        """Return `where(condition, operand)`."""
        axes = self.union([condition.type.axes, operand.type.axes])
        return Mask(condition, operand, replace(operand.type, axes=axes, absent=True), span)

    def fill(self, operand: Expr, value: Operand, *, span: Span = NOWHERE) -> Fill:
        """Return `fill(operand, value)`."""
        other = as_expr(value)
        dtype, weak = promote((operand.type, other.type))
        if operand.type.dtype is BOOL and other.type.dtype is BOOL:
            dtype = BOOL
        axes = self.union([operand.type.axes, other.type.axes])
        type_ = Type(dtype, axes, other.type.absent, weak)
        return Fill(convert(operand, dtype), convert(other, dtype), type_, span)

    def reduce(
        self,
        op: str,
        axes: Sequence[str],
        *operands: Expr,
        condition: Expr | None = None,
        k: int | None = None,
        new_axis: str | None = None,
        monoid: Monoid | None = None,
        span: Span = NOWHERE,
    ) -> Reduce:
        """Return the reduction of `operands` over `axes`, with the types that follow."""
        parts = tuple(_summand(op, operand) for operand in operands)
        sources = [part.type.axes for part in parts]
        if condition is not None:
            sources.append(condition.type.axes)
        kept = self.union([set(self.union(sources)) - set(axes), [new_axis] if new_axis else []])
        index = Type(I64, kept)
        match op:
            case "any" | "all":
                types: tuple[Type, ...] = (Type(BOOL, kept),)
            case "count":
                types = (index,)
            case "argmax" | "argmin":
                types = (index,) * len(axes)
            case "topk":
                types = (Type(parts[0].type.dtype, kept), *(index,) * len(axes))
            case "monoid":
                assert monoid is not None
                types = tuple(Type(part.type.dtype, kept) for part in monoid.finish)
            case _:
                types = (Type(parts[0].type.dtype, kept),)
        return Reduce(op, tuple(axes), parts, condition, types, k, new_axis, monoid, span)

    def rebuild(self, expr: Expr, parts: Sequence[Expr]) -> Expr:
        """Return `expr` with `parts` for children, its type inferred anew."""
        if all(new is old for new, old in zip(parts, walk.children(expr), strict=True)):
            return expr
        match expr:
            case Literal() | Index() | Size() | Scalar() | Ref():
                return expr
            case Load():
                axes = self.union(part.type.axes for part in parts)
                absent = any(expr.guarded) or any(part.type.absent for part in parts)
                type_ = replace(expr.type, axes=axes, absent=absent)
                return replace(expr, subscripts=tuple(parts), type=type_)
            case Apply():
                return self.apply(expr.op, *parts, span=expr.span)
            case Cast():
                type_ = replace(parts[0].type, dtype=expr.type.dtype, weak=expr.type.weak)
                return replace(expr, operand=parts[0], type=type_)
            case Mask():
                return self.mask(parts[0], parts[1], span=expr.span)
            case Fill():
                return self.fill(parts[0], parts[1], span=expr.span)
            case _:
                assert_never(expr)


def as_expr(operand: Operand) -> Expr:
    """Return an expression as it is, a Python number as a weak literal."""
    return literal(operand) if isinstance(operand, bool | int | float) else operand


def convert(expr: Expr, dtype: DType) -> Expr:
    """Return `expr` in the compute type `dtype`.

    A weak expression takes the type on, down to its literals and scalars, so that `0.1 * x` uses
    the double 0.1 where x is f64; anything else gets an implicit cast.
    """
    if expr.type.dtype is dtype:
        return expr
    if isinstance(expr, Literal) and (dtype.kind == "float" or expr.type.dtype.kind != "float"):
        value = float(expr.value) if dtype.kind == "float" else expr.value
        return replace(expr, value=value, type=replace(expr.type, dtype=dtype))
    if expr.type.weak and expr.type.dtype.kind == dtype.kind == "float":
        type_ = replace(expr.type, dtype=dtype)
        match expr:
            case Scalar():
                return replace(expr, type=type_)
            case Apply():
                arguments = tuple(_convert_float(part, dtype) for part in expr.arguments)
                return replace(expr, arguments=arguments, type=type_)
            case Cast(explicit=False):
                return convert(expr.operand, dtype)
            case _:
                pass
    # An integer that becomes a float yields to strong floats, as everything made of it does.
    weak = expr.type.weak or (expr.type.dtype.kind != "float" and dtype.kind == "float")
    type_ = replace(expr.type, dtype=dtype, weak=weak)
    return Cast(expr, dtype, type_, explicit=False, span=expr.span)


def _convert_float(expr: Expr, dtype: DType) -> Expr:
    return convert(expr, dtype) if expr.type.dtype.kind == "float" else expr


def _common(op: str, rule: Rule, parts: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], DType, bool]:
    """Return the arguments in their common type, the result's type, and whether it is weak."""
    types = [part.type for part in parts]
    truths = all(type_.dtype is BOOL for type_ in types)
    dtype, weak = promote(types)
    match rule:
        case "test":
            return parts, BOOL, False
        case "compare" | "logic" if truths:
            return parts, BOOL, False
        case "compare":
            return tuple(convert(part, dtype) for part in parts), BOOL, False
        case "where":
            condition, *choices = parts
            if all(choice.type.dtype is BOOL for choice in choices):
                return parts, BOOL, False
            dtype, weak = promote(types[1:])
            return (condition, *(convert(choice, dtype) for choice in choices)), dtype, weak
        case "arithmetic" | "logic":
            pass
        case "real" if op == "ldexp":
            dtype, weak = promote([types[0], Type(F32, weak=True)])
            return (convert(parts[0], dtype), parts[1]), dtype, weak
        case "power" if _integer_power(parts):
            pass
        case "real" | "power":
            dtype, weak = promote([*types, Type(F32, weak=True)])
        case _:
            assert_never(rule)
    dtype = computed(op, dtype)
    return tuple(convert(part, dtype) for part in parts), dtype, weak


def _integer_power(parts: tuple[Expr, ...]) -> bool:
    exponent = parts[1]
    return isinstance(exponent, Literal) and isinstance(exponent.value, int) and exponent.value >= 0


def _summand(op: str, operand: Expr) -> Expr:
    """Return the operand as the reduction takes it: truth values are counted in int64."""
    if op in ("any", "all", "count", "monoid") or operand.type.dtype is not BOOL:
        return operand
    return convert(operand, I64)
