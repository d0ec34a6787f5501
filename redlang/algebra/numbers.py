"""Expressions at sixty digits, on numbers made up from a seed.

Proofs are checked on such numbers, and what cannot be carried is refuted by them. Real arithmetic
is meant: nothing over- or underflows, only the casts that a user wrote round.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import mpmath

from redlang.algebra.operators import ANY, NONNEGATIVE, NONPOSITIVE, Sign
from redlang.ir import walk
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Size
from redlang.ir.types import DType

DIGITS = 60
SEED = 20260311

Number: TypeAlias = Any
"""An mpf of this thread's context, or a bool. (mpmath has no types.)"""

Context: TypeAlias = Any
"""An mpmath context."""

Values: TypeAlias = Mapping[int, Number]
"""Values of nodes by their ids."""

_PRECISION = {"f8e4m3": 4, "f8e5m2": 3, "bf16": 8, "f16": 11, "f32": 24, "f64": 53}
_local = threading.local()


class UndefinedError(ArithmeticError):
    """An expression has no real value: a logarithm of a negative number, 0/0."""


def context() -> Context:
    """Return this thread's mpmath context; the global one is not safe to share."""
    if not hasattr(_local, "context"):
        _local.context = mpmath.MPContext()
        _local.context.dps = DIGITS
    return _local.context


def evaluate(expr: Expr, values: Values) -> Number:
    """Return the value of `expr` at sixty digits, from those of some nodes in it.

    Raises:
        UndefinedError: Somewhere it is not a real number.
    """
    return Tape(expr, values).run(values)


class Tape:
    """An expression laid out for evaluation on many inputs.

    Attributes:
        inputs: Nodes, by id, whose values are given.
    """

    def __init__(self, expr: Expr, inputs: Collection[int]) -> None:
        self.inputs = frozenset(inputs)
        self._places: dict[int, int] = {}
        self._entries: list[tuple[Expr, tuple[int, ...]]] = []
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in self._places:
                continue
            children = () if id(node) in self.inputs else walk.children(node)
            if ready or not children:
                self._places[id(node)] = len(self._entries)
                places = tuple(self._places[id(child)] for child in children)
                self._entries.append((node, places))
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in children)

    def run(self, values: Values, ctx: Context = None) -> Number:
        """Return the expression's value, at sixty digits or in the arithmetic of `ctx`.

        Raises:
            UndefinedError: Somewhere it is not a real number.
        """
        ctx = ctx or context()
        results: list[Number] = []
        for node, places in self._entries:
            given = values.get(id(node))
            if given is None:
                given = _node(ctx, node, [results[place] for place in places])
            results.append(given)
        return results[-1]


def _node(ctx: Context, node: Expr, parts: list[Number]) -> Number:
    match node:
        case Literal(value):
            return value if isinstance(value, bool) else ctx.mpf(value)
        case Apply(op):
            return _apply(ctx, op, parts)
        case Cast(_, to, _, explicit):
            return _cast(ctx, parts[0], to, explicit=explicit)
        case _:
            raise UndefinedError(f"no value for {node}")


def _apply(ctx: Context, op: str, parts: list[Number]) -> Number:
    try:
        value = _FUNCTIONS[op](ctx, *parts)
    except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.ComplexResult) as error:
        raise UndefinedError(op) from error
    if isinstance(value, bool):
        return value
    if isinstance(value, ctx.mpc) or ctx.isnan(value):
        raise UndefinedError(op)
    return value


def _cast(ctx: Context, value: Number, to: DType, *, explicit: bool) -> Number:
    if isinstance(value, bool):
        value = ctx.mpf(int(value))
    if to.kind == "bool":
        return bool(value != 0)
    if to.kind != "float":
        return ctx.mpf(int(value))
    if not explicit or value == 0:
        return value
    # Rounds to the type's significant bits; its range is not modelled.
    bits = _PRECISION[to.name]
    scale = ctx.mpf(2) ** (bits - 1 - ctx.floor(ctx.log(abs(value), 2)))
    return _nearest(ctx, value * scale) / scale


def _nearest(ctx: Context, value: Number) -> Number:
    """Return the nearest whole number, of two the even one."""
    whole = ctx.floor(value)
    rest = value - whole
    up = rest > 0.5 or (rest == 0.5 and int(whole) % 2)
    return whole + 1 if up else whole


def _pow(ctx: Context, a: Number, b: Number) -> Number:
    if a == 0 and b <= 0:
        raise ZeroDivisionError
    return a ** int(b) if b == int(b) else ctx.power(a, b)


def _real(name: str) -> Callable[..., Number]:
    return lambda ctx, a: getattr(ctx, name)(a)


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "add": lambda _, a, b: a + b,
    "sub": lambda _, a, b: a - b,
    "mul": lambda _, a, b: a * b,
    "div": lambda _, a, b: a / b,
    "floordiv": lambda ctx, a, b: ctx.floor(a / b) if b else ctx.mpf(0),
    "mod": lambda ctx, a, b: a - b * ctx.floor(a / b) if b else ctx.mpf(0),
    "pow": _pow,
    "neg": lambda _, a: -a,
    "eq": lambda _, a, b: bool(a == b),
    "ne": lambda _, a, b: bool(a != b),
    "lt": lambda _, a, b: bool(a < b),
    "le": lambda _, a, b: bool(a <= b),
    "gt": lambda _, a, b: bool(a > b),
    "ge": lambda _, a, b: bool(a >= b),
    "and": lambda _, a, b: a and b if isinstance(a, bool) else int(a) & int(b),
    "or": lambda _, a, b: a or b if isinstance(a, bool) else int(a) | int(b),
    "xor": lambda _, a, b: a != b if isinstance(a, bool) else int(a) ^ int(b),
    "not": lambda _, a: not a if isinstance(a, bool) else ~int(a),
    "exp": _real("exp"),
    "exp2": lambda ctx, a: ctx.power(2, a),
    "log": lambda ctx, a: ctx.ln(a) if a > 0 else _undefined(),
    "log2": lambda ctx, a: ctx.ln(a) / ctx.ln(2) if a > 0 else _undefined(),
    "sqrt": lambda ctx, a: ctx.sqrt(a) if a >= 0 else _undefined(),
    "rsqrt": lambda ctx, a: 1 / ctx.sqrt(a) if a > 0 else _undefined(),
    "abs": lambda _, a: abs(a),
    "sign": lambda ctx, a: ctx.sign(a),
    "tanh": _real("tanh"),
    "sigmoid": lambda ctx, a: 1 / (1 + ctx.exp(-a)),
    "erf": _real("erf"),
    "sin": _real("sin"),
    "cos": _real("cos"),
    "floor": _real("floor"),
    "ceil": _real("ceil"),
    "round": _nearest,
    "minimum": lambda _, a, b: min(a, b),
    "maximum": lambda _, a, b: max(a, b),
    "clip": lambda _, a, low, high: min(max(a, low), high),
    "where": lambda _, c, a, b: a if c else b,
    "isnan": lambda _, __: False,
    "isfinite": lambda _, __: True,
    "ldexp": lambda ctx, a, b: a * ctx.mpf(2) ** int(b),
}


def _undefined() -> Number:
    raise ZeroDivisionError


class Sampler:
    """Numbers for leaves, drawn from a seed; short ones, so that a witness can be read."""

    def __init__(self, seed: int = SEED, spread: int = 0) -> None:
        """Begin; floats are up to 4 in magnitude, times up to 2 to the power of `spread`."""
        self._random = random.Random(seed)
        self._spread = spread

    def draw(self, node: Expr, sign: Sign = ANY) -> Number:
        """Return a number that `node` may have."""
        ctx, kind = context(), node.type.dtype.kind
        if kind == "bool":
            return self.coin()
        if isinstance(node, Index):
            return ctx.mpf(self._random.randint(0, 50))
        if isinstance(node, Size):
            return ctx.mpf(self._random.randint(2, 60))
        if sign is Sign.ZERO:
            return ctx.mpf(0)
        eighths = self._random.randint(1, 31)
        value = ctx.mpf(eighths)
        if kind == "float":
            value = value / 8
        if self._spread:
            value = self._scaled(value, floating=kind == "float")
        if not sign & ~NONPOSITIVE:
            return -value
        if sign & ~NONNEGATIVE and kind != "uint" and self.coin():
            return -value
        return value

    def _scaled(self, value: Number, *, floating: bool) -> Number:
        power = self._random.randint(-self._spread, self._spread)
        scaled = value * context().mpf(2) ** power
        return scaled if floating else max(context().mpf(1), context().floor(scaled))

    def coin(self) -> bool:
        """Return one of two equally likely outcomes."""
        return bool(self._random.getrandbits(1))


def text(value: Number) -> str:
    """Return a number as short as it can be told apart."""
    if isinstance(value, bool):
        return str(value)
    return f"{float(value):.6g}"
