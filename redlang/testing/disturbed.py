"""Programs in which every rounding is made large: Monte Carlo arithmetic on the reduction IR.

A result may be off by what roundings on the way come to, and the inputs need not show them: where
tanh has its values 1 and -1, or where x - y is what cancels, a sum moves although nothing that goes
into it does. So each operation that rounds is multiplied by a random number near 1, and each sum
is moved by a share of the sum of its terms' magnitudes, as far as the contract lets it be off (D.
Stott Parker, "Monte Carlo arithmetic", 1997; here at the scale of `STEP`, where what comes out is
linear in it and far above the roundings of float64).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redlang.algebra.sharing import Pool
from redlang.ir import walk
from redlang.ir.build import Builder, literal
from redlang.ir.interpret import bind, interpret
from redlang.ir.normalise import normalise
from redlang.ir.program import Apply, ArrayParam, Cast, Definition, Dim, Expr, Program, Reduce, Ref
from redlang.ir.types import F64, DType, Type

Array = NDArray[Any]

STEP = 2.0**-20
"""How large a rounding is made."""
EXACT_INTEGERS = 2.0**24
"""Up to here integers are numbers of f32."""

_ARITHMETIC = ("add", "sub", "mul", "div", "pow", "mod")
_FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos")
_ROUNDED = frozenset((*_ARITHMETIC, *_FUNCTIONS))


def disturbed(
    program: Program,
    arguments: Mapping[str, Any],
    seed: int,
    *,
    inputs: float = STEP,
    roundings: float = STEP,
) -> tuple[Array, ...]:
    """Return the results of a program, not stored, when random numbers are moved.

    Args:
        program: As resolved.
        arguments: Arrays and numbers by name.
        seed: Which random numbers.
        inputs: How far floating inputs are moved; the opposite number moves them the other way.
        roundings: How far results of operations and sums are moved.
    """
    rng = np.random.default_rng(seed)
    noise = _Noise(normalise(program), arguments, rng, inputs, roundings)
    return interpret(noise.program(), noise.arguments, store=False)


class _Noise:
    """Writes the disturbed program, and draws what it multiplies by."""

    def __init__(
        self,
        program: Program,
        arguments: Mapping[str, Any],
        rng: np.random.Generator,
        inputs: float,
        roundings: float,
    ) -> None:
        self.before = program
        self.build = Builder.of(program)
        self.pool = Pool()
        self.rng = rng
        self.inputs = inputs
        self.roundings = roundings
        self.extents = bind(program, arguments).extents
        self.arguments = dict(arguments)
        self.added: list[ArrayParam] = []
        self.done: dict[int, Expr] = {}

    def program(self) -> Program:
        """Return the program that reads the moved inputs."""
        params = [self._moved(p) if isinstance(p, ArrayParam) else p for p in self.before.params]
        if not self.roundings:
            return replace(self.before, params=tuple(params))
        definitions = [d for old in self.before.definitions for d in self._definitions(old)]
        results = [replace(r, value=self._expr(r.value)) for r in self.before.results]
        return replace(
            self.before,
            params=(*params, *self.added),
            definitions=tuple(definitions),
            results=tuple(results),
        )

    def _moved(self, param: ArrayParam) -> ArrayParam:
        """Move an input, which is the same wherever it is read."""
        value = np.asarray(self.arguments[param.name])
        if param.dtype.kind != "float":
            return param
        factors = 1 + self.inputs * self.rng.uniform(-1, 1, value.shape)
        self.arguments[param.name] = value.astype(np.float64) * factors
        return replace(param, dtype=F64)

    def _definitions(self, old: Definition) -> list[Definition]:
        value = old.value
        if not isinstance(value, Reduce):
            return [replace(old, value=self._expr(value))]
        operands = tuple(self._term(value.op, operand) for operand in value.operands)
        new = replace(value, operands=operands)
        if value.op not in ("sum", "prod") or value.types[0].dtype.kind != "float":
            return [replace(old, value=new)]
        (name,), (type_,) = old.names, value.types
        whole = Ref(f"{name}~", type_)
        first = replace(old, names=(whole.name,), value=new)
        if value.op == "prod":
            return [first, replace(old, value=self.build.mul(whole, self._near_one(type_)))]
        size = Ref(f"{name}~size", type_)
        sizes = replace(new, operands=(self._magnitude(operands[0]),))
        move = self.build.mul(size, self._drawn(type_))
        # A sum of infinite terms has no roundings.
        move = self.build.where(self.build.apply("isfinite", size), move, 0.0)
        return [
            first,
            replace(old, names=(size.name,), value=sizes),
            replace(old, value=self.build.add(whole, move)),
        ]

    def _term(self, op: str, operand: Expr) -> Expr:
        """Return an operand; the products that a sum adds up are counted at the sum."""
        operand = self.pool.intern(operand)
        if op == "sum" and isinstance(operand, Apply) and operand.op == "mul":
            return walk.rebuild(operand, [self._term(op, part) for part in operand.arguments])
        return self._expr(operand)

    def _magnitude(self, expr: Expr) -> Expr:
        if isinstance(expr, Apply) and expr.op == "mul":
            return walk.rebuild(expr, [self._magnitude(part) for part in expr.arguments])
        return self.build.apply("abs", expr)

    def _expr(self, expr: Expr) -> Expr:
        root = self.pool.intern(expr)
        for node in walk.nodes(root):
            if id(node) not in self.done:
                new = walk.rebuild(node, [self.done[id(part)] for part in walk.children(node)])
                self.done[id(node)] = self._rounded(new)
        return self.done[id(root)]

    def _rounded(self, node: Expr) -> Expr:
        build = self.build
        match node:
            case Apply(op, _, type_) if op in _ROUNDED and type_.dtype.kind == "float":
                return build.mul(node, self._near_one(type_))
            case Cast(operand, _, type_, False) if _from_integer(operand.type.dtype, type_.dtype):
                large = build.apply("gt", build.apply("abs", node), EXACT_INTEGERS)
                return build.mul(node, build.where(large, self._near_one(type_), 1.0))
            case _:
                return node

    def _near_one(self, type_: Type) -> Expr:
        return self.build.add(literal(1.0, type_.dtype), self._drawn(type_))

    def _drawn(self, type_: Type) -> Expr:
        """Return random numbers up to the step along a type's axes."""
        name = f"~{len(self.added)}"
        self.added.append(ArrayParam(name, tuple(Dim((axis,)) for axis in type_.axes), F64))
        shape = [self.extents[axis] for axis in type_.axes]
        self.arguments[name] = self.roundings * self.rng.uniform(-1, 1, shape)
        load = self.build.load(name, F64, [self.build.index(axis) for axis in type_.axes])
        return self.build.convert(load, type_.dtype)


def _from_integer(source: DType, target: DType) -> bool:
    return source.kind in ("int", "uint") and target.kind == "float"
