"""Scalar expressions → Python text over a target's vocabulary.

What arrays, values, indices and sizes are called is the emitter's affair: it gives a `Setting`. The
rest is a table of operators. Vocabulary functions take the types that they are given and return
them, so every conversion between compute types stands in the text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol, assert_never

from redlang.errors import InternalError
from redlang.ir import walk
from redlang.ir.monotony import is_small
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Ref,
    Scalar,
    Size,
)
from redlang.ir.types import BOOL, F64, I64, U64, DType


class Setting(Protocol):
    """What the names in an expression stand for."""

    def index(self, axis: str) -> str:
        """Return the current index along `axis`."""

    def size(self, axis: str) -> str:
        """Return the extent of `axis`."""

    def scalar(self, name: str, dtype: DType) -> str:
        """Return a scalar argument in the compute type `dtype`."""

    def load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        """Return an element of an array."""

    def ref(self, ref: Ref) -> str:
        """Return the value called `ref.name` at the current indices."""

    def keep(self, text: str) -> str:
        """Give a value that is used more than once a name, and return that."""


_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
# Every other operator is a function, of its own name where this table has no other for it.
_RENAMED = {
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
    "not": "logical_not",
    "floordiv": "floor_divide",
    "mod": "modulo",
    "abs": "absolute",
    "round": "round_even",
    "where": "select",
    "isnan": "is_nan",
    "isfinite": "is_finite",
    "pow": "power",
}
# Powers up to this one are products: two roundings at most, and no logarithm.
_LARGEST_PRODUCT = 4
# Powers by a square root: no more roundings than a quotient by four factors has.
_HALVES = (0.5, 1.5)


def spell(expr: Expr, setting: Setting) -> str:
    """Return the text of `expr`, of the type of `expr`."""
    return _Spelling(expr, setting).text(expr)


def number(value: bool | int | float, dtype: DType) -> str:
    """Return a constant of a compute type."""
    if dtype is BOOL:
        return "True" if value else "False"
    if dtype.kind != "float":
        whole = int(value) & 0xFFFF_FFFF_FFFF_FFFF
        if dtype is U64:
            return f"u64({whole})"
        whole -= (whole >> 63) << 64
        return str(whole) if whole >= 0 else f"({whole})"
    value = float(value)
    if math.isnan(value):
        return f"{dtype.name}(nan)"
    if math.isinf(value):
        return f"{dtype.name}({'-' if value < 0 else ''}inf)"
    return f"{dtype.name}({value!r})"


def converted(text: str, source: DType, target: DType) -> str:
    """Return text of one compute type in another."""
    return text if source is target else f"to_{target.name}({text})"


def arithmetic(op: str, left: str, right: str, dtype: DType) -> str:
    """Return the text of `add`, `sub` or `mul` of two values of a compute type; int64 wraps."""
    return _wrapping(op, left, right) if dtype is I64 else _plain(op, left, right)


class _Spelling:
    """One walk over an expression; nodes that are used twice are named."""

    def __init__(self, root: Expr, setting: Setting) -> None:
        self.setting = setting
        uses = Counter(id(child) for node in walk.nodes(root) for child in walk.children(node))
        self.shared = {key for key, count in uses.items() if count > 1}
        self.named: dict[int, str] = {}

    def text(self, expr: Expr) -> str:
        key = id(expr)
        if key in self.named:
            return self.named[key]
        text = self.compute(expr)
        if key in self.shared and isinstance(expr, Apply | Cast | Load):
            text = self.named[key] = self.setting.keep(text)
        return text

    def compute(self, expr: Expr) -> str:
        match expr:
            case Literal(value, type_):
                return number(value, type_.dtype)
            case Index(axis, type_):
                return converted(self.setting.index(axis), I64, type_.dtype)
            case Size(axis, type_):
                return converted(self.setting.size(axis), I64, type_.dtype)
            case Scalar(name, type_):
                return self.setting.scalar(name, type_.dtype)
            case Load():
                places = tuple(self.typed(part, I64) for part in expr.subscripts)
                return self.setting.load(expr, places)
            case Ref():
                return self.setting.ref(expr)
            case Apply():
                return self.apply(expr)
            case Cast(operand, to, type_, explicit):
                if explicit:
                    return f"cast_{to.name}({self.text(operand)})"
                return self.typed(operand, type_.dtype)
            case Mask() | Fill():
                raise InternalError("a mask in a normalised program")
            case _:
                assert_never(expr)

    def typed(self, expr: Expr, dtype: DType) -> str:
        """Return the text of `expr` in the compute type `dtype`."""
        return converted(self.text(expr), expr.type.dtype, dtype)

    def apply(self, expr: Apply) -> str:
        op, arguments, dtype = expr.op, expr.arguments, expr.type.dtype
        if op in _INFIX:
            left, right = arguments
            shared = dtype if dtype is not BOOL else _common(left.type.dtype, right.type.dtype)
            texts = self.typed(left, shared), self.typed(right, shared)
            return _wrapping(op, *texts) if _wraps(expr) else f"({_plain(op, *texts)})"
        special = _SPECIAL.get(op)
        if special is not None:
            text = special(self, expr)
            if text is not None:
                return text
        parts = [self.typed(argument, dtype) for argument in arguments]
        return f"{_RENAMED.get(op, op)}({', '.join(parts)})"

    def negate(self, expr: Apply) -> str:
        dtype = expr.type.dtype
        operand = self.typed(expr.arguments[0], dtype)
        if _wraps(expr):
            return f"to_i64(u64(0) - to_u64({operand}))"
        # Numba makes the negative of a uint64 an int64.
        return f"(u64(0) - {operand})" if dtype is U64 else f"(-{operand})"

    def select(self, expr: Apply) -> str:
        condition, yes, no = expr.arguments
        dtype = expr.type.dtype
        test = self.typed(condition, BOOL)
        return f"select({test}, {self.typed(yes, dtype)}, {self.typed(no, dtype)})"

    def test(self, expr: Apply) -> str:
        (operand,) = expr.arguments
        if operand.type.dtype.kind != "float":
            return "False" if expr.op == "isnan" else "True"
        return f"{_RENAMED[expr.op]}({self.text(operand)})"

    def scale(self, expr: Apply) -> str:
        value, exponent = expr.arguments
        return f"ldexp({self.typed(value, expr.type.dtype)}, {self.typed(exponent, I64)})"

    def power(self, expr: Apply) -> str | None:
        base, exponent = expr.arguments
        if not isinstance(exponent, Literal):
            return None
        if not float(exponent.value).is_integer():
            return self.half_power(expr, float(exponent.value))
        times, dtype = int(exponent.value), expr.type.dtype
        if dtype.kind == "float" and abs(times) > _LARGEST_PRODUCT:
            return None
        if times == 0:
            return number(1, dtype)
        factor = self.typed(base, dtype)
        if isinstance(base, Apply | Cast | Load):
            factor = self.setting.keep(factor)
        product = self.product(factor, abs(times), wraps=_wraps(expr))
        return product if times > 0 else f"({number(1, dtype)} / {product})"

    def half_power(self, expr: Apply, exponent: float) -> str | None:
        """Return a power with a half, such as 1.5, as a product with a square root."""
        dtype = expr.type.dtype
        if dtype.kind != "float" or abs(exponent) not in _HALVES:
            return None
        factor = self.typed(expr.arguments[0], dtype)
        if exponent == 0.5:
            # As in the reference, a square root for -inf and -0 too.
            return f"sqrt({factor})"
        factor = self.setting.keep(factor)
        # The powers of -inf and of -0 are those of inf and 0.
        infinite = f"{factor} == {number(-math.inf, dtype)}"
        positive = f"select({infinite}, {number(math.inf, dtype)}, {factor} + {number(0, dtype)})"
        factor = self.setting.keep(positive)
        root = f"sqrt({factor})"
        product = f"({factor} * {root})" if abs(exponent) > 1 else root
        return product if exponent > 0 else f"({number(1, dtype)} / {product})"

    def product(self, factor: str, times: int, *, wraps: bool) -> str:
        """Return factor^times by squaring."""
        if times == 1:
            return factor
        half = self.product(factor, times // 2, wraps=wraps)
        if times >= 4:
            half = self.setting.keep(half)
        square = _wrapping("mul", half, half) if wraps else f"({half} * {half})"
        if times % 2 == 0:
            return square
        return _wrapping("mul", square, factor) if wraps else f"({square} * {factor})"


def _wraps(expr: Apply) -> bool:
    """Return whether arithmetic may leave the range of int64, where Numba's has no meaning."""
    return expr.type.dtype is I64 and not is_small(expr)


def _wrapping(op: str, left: str, right: str) -> str:
    """Return the text of arithmetic of int64 that wraps.

    Numba's own is free to assume that it does not: LLVM then drops tests that only a value that
    has wrapped would pass.
    """
    return f"to_i64({_plain(op, f'to_u64({left})', f'to_u64({right})')})"


def _plain(op: str, left: str, right: str) -> str:
    return f"{left} {_INFIX[op]} {right}"


def _common(left: DType, right: DType) -> DType:
    """Return the compute type in which two operands are compared; they agree in built trees."""
    if left is right:
        return left
    floats = {dtype for dtype in (left, right) if dtype.kind == "float"}
    if floats:
        return F64 if F64 in floats else floats.pop()
    return I64


_SPECIAL: dict[str, Callable[[_Spelling, Apply], str | None]] = {
    "neg": _Spelling.negate,
    "where": _Spelling.select,
    "isnan": _Spelling.test,
    "isfinite": _Spelling.test,
    "ldexp": _Spelling.scale,
    "pow": _Spelling.power,
}
