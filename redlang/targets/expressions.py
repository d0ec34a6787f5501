"""Expressions of generated CUDA text → LLVM instructions.

Types follow from those of the operands. Integers compute in 64 bits, and signed ones do not
overflow. What is not known is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from llvmlite import ir

from redlang.targets.kinds import (
    BOOL,
    FLOAT64,
    I32,
    INT32,
    INT64,
    NOTHING,
    UINT64,
    Kind,
    Scalar,
    Tuple,
    common,
    tuple_of,
)
from redlang.targets.ptx.inline import Values, Word, pack


class TextError(Exception):
    """A text goes beyond what can be translated."""


@dataclass(frozen=True, slots=True)
class Register:
    """A number that the hardware tells, such as that of the thread.

    Attributes:
        name: As libNVVM calls it: `tid.x`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Typed:
    """An LLVM value with its type."""

    kind: Kind
    raw: Values


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Where a variable lies, and its type there."""

    kind: Kind
    place: ir.Value


@dataclass(eq=False)
class Expressions:
    """Writes the expressions of one function.

    Attributes:
        function: What is written.
        python: The text's function.
        builder: Where it goes on.
        variables: What names mean; None for one that has several types.
        read: Variables that have been read.
    """

    function: ir.Function
    python: Any
    builder: ir.IRBuilder
    variables: dict[str, Variable | None] = field(default_factory=dict)
    read: set[Variable] = field(default_factory=set)

    def value(self, node: ast.expr) -> Typed:
        """Write an expression."""
        match node:
            case ast.Constant(value=value):
                return _constant(value, node)
            case ast.Name(id=name) if name in self.variables:
                variable = self.variables[name]
                if variable is None:
                    raise refused(node, "a variable of several types")
                self.read.add(variable)
                return Typed(variable.kind, self.builder.load(variable.place))
            case ast.Subscript(value=value, slice=ast.Constant(value=int(number))):
                return self.element(self.value(value), number, node)
            case ast.Name() | ast.Attribute():
                return self.known(self.outside(node), node)
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self.call(self.outside(function), arguments, node)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(type(op), self.value(left), self.value(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
                # The least int64 has a sign from the start: without it, it is a uint64.
                return _constant(-number, node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand), node)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(type(op), self.value(left), self.value(right), node)
            case ast.BoolOp(op=op, values=values):
                # Nothing that is tested has effects, so that all of it may be.
                join = self.builder.and_ if isinstance(op, ast.And) else self.builder.or_
                return Typed(BOOL, reduce(join, map(self.test, values)))
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self.chosen(self.test(test), yes, no, node)
            case ast.Tuple(elts=elements) if len(elements) > 1:
                parts = [self.value(element) for element in elements]
                raw = pack(self.builder, [part.raw for part in parts])
                return Typed(tuple_of(part.kind for part in parts), raw)
            case _:
                raise refused(node, "this expression")

    def test(self, node: ast.expr) -> ir.Value:
        """Write a condition: a truth value, or a whole number that is not 0."""
        found = self.value(node)
        if found.kind.is_integer:
            return self.builder.icmp_unsigned("!=", found.raw, ir.Constant(found.kind.llvm, 0))
        if found.kind != BOOL:
            raise refused(node, "a condition that is no truth value")
        return found.raw

    def outside(self, node: ast.expr) -> object:
        """Return what a name means in the text's module."""
        try:
            match node:
                case ast.Name(id=name):
                    return self.python.__globals__[name]
                case ast.Attribute(value=value, attr=attribute):
                    return getattr(self.outside(value), attribute)
        except (KeyError, AttributeError):
            pass
        raise refused(node, "an unknown name")

    def known(self, found: object, node: ast.expr) -> Typed:
        """Write a number from the text's module, or a register of the hardware."""
        if isinstance(found, Register):
            name = f"llvm.nvvm.read.ptx.sreg.{found.name}"
            module = self.function.module
            read = module.globals.get(name) or ir.Function(module, ir.FunctionType(I32, []), name)
            return Typed(INT32, self.builder.call(read, []))
        return _constant(found, node)

    def call(self, word: object, arguments: Sequence[ast.expr], node: ast.expr) -> Typed:
        """Write a call of a word."""
        if not isinstance(word, Word):
            raise refused(node, "calling this")
        given = [self.value(argument) for argument in arguments]
        typed = word.typed(*(value.kind for value in given)) if len(given) == word.arity else None
        if typed is None:
            kinds = ", ".join(_name(value.kind) for value in given)
            raise refused(node, f"{word.name} of ({kinds})")
        signature, generate = typed
        raws = [
            self.cast(value, kind, node)
            for value, kind in zip(given, signature.arguments, strict=True)
        ]
        return Typed(signature.result, generate(self.builder, raws))

    def element(self, value: Typed, number: int, node: ast.expr) -> Typed:
        """Write an element of a tuple."""
        if not isinstance(value.kind, Tuple) or not 0 <= number < len(value.kind.elements):
            raise refused(node, f"an element of {_name(value.kind)}")
        kind = value.kind.elements[number]
        return Typed(kind, self.builder.extract_value(value.raw, number))

    def chosen(self, test: ir.Value, yes: ast.expr, no: ast.expr, node: ast.expr) -> Typed:
        """Write `yes if test else no`."""
        blocks = [self.function.append_basic_block(name) for name in ("yes", "no", "chosen")]
        self.builder.cbranch(test, *blocks[:2])
        found, ends = [], []
        for block, part in zip(blocks, (yes, no), strict=False):
            self.builder.position_at_end(block)
            found.append(self.value(part))
            ends.append(self.builder.block)
        kind = self.shared(found[0], found[1], node)
        raws = []
        for value, end in zip(found, ends, strict=True):
            self.builder.position_at_end(end)
            raws.append(self.cast(value, kind, node))
            self.builder.branch(blocks[2])
        self.builder.position_at_end(blocks[2])
        phi = self.builder.phi(kind.llvm)
        for raw, end in zip(raws, ends, strict=True):
            phi.add_incoming(raw, end)
        return Typed(kind, phi)

    def shared(self, a: Typed, b: Typed, node: ast.expr) -> Kind:
        """Return the type in which two values meet."""
        kind = a.kind if a.kind == b.kind else common(a.kind, b.kind)
        if kind is None:
            raise refused(node, f"{_name(a.kind)} beside {_name(b.kind)}")
        return kind

    def binary(self, op: type[ast.operator], a: Typed, b: Typed, node: ast.expr) -> Typed:
        """Write arithmetic."""
        if a.kind == b.kind == BOOL and op in _LOGIC:
            return Typed(BOOL, getattr(self.builder, _LOGIC[op])(a.raw, b.raw))
        kind = common(a.kind, b.kind)
        names = _FLOATING if kind is not None and kind.is_float else _WHOLE | _LOGIC
        if kind is None or (op not in names and op not in (ast.FloorDiv, ast.Mod)):
            raise refused(node, f"{_name(a.kind)} beside {_name(b.kind)}")
        left, right = (self.cast(value, kind, node) for value in (a, b))
        if op in (ast.FloorDiv, ast.Mod):
            quotient, rest = self.divided(kind, left, right, node)
            return Typed(kind, quotient if op is ast.FloorDiv else rest)
        name = names[op]
        if op is ast.RShift:
            name = "ashr" if kind.signed else "lshr"
        # Overflow of signed numbers is left open, which lets the compiler count in steps.
        flags = ["nsw"] if kind.signed and op in _OVERFLOWING else []
        return Typed(kind, getattr(self.builder, name)(left, right, flags=flags))

    def divided(
        self, kind: Kind, a: ir.Value, b: ir.Value, node: ast.expr
    ) -> tuple[ir.Value, ir.Value]:
        """Write a quotient, rounded down, and the remainder, by a number that is not 0."""
        builder = self.builder
        if not kind.is_integer:
            raise refused(node, "quotients of floats as whole numbers")
        if not kind.signed:
            return builder.udiv(a, b), builder.urem(a, b)
        quotient, rest = builder.sdiv(a, b), builder.srem(a, b)
        zero = ir.Constant(a.type, 0)
        apart = builder.icmp_signed("<", builder.xor(rest, b), zero)
        down = builder.and_(apart, builder.icmp_unsigned("!=", rest, zero))
        return (
            builder.sub(quotient, builder.zext(down, a.type)),
            builder.select(down, builder.add(rest, b), rest),
        )

    def unary(self, op: ast.unaryop, x: Typed, node: ast.expr) -> Typed:
        """Write a sign or a negation."""
        builder = self.builder
        if isinstance(op, ast.Not) and x.kind == BOOL:
            return Typed(BOOL, builder.not_(x.raw))
        if isinstance(op, ast.USub) and x.kind.is_float:
            # libNVVM's dialect has no fneg.
            return Typed(x.kind, builder.fsub(ir.Constant(x.kind.llvm, -0.0), x.raw))
        if isinstance(op, ast.USub) and x.kind.is_integer:
            kind = INT64 if x.kind.signed else UINT64
            return Typed(kind, builder.neg(self.cast(x, kind, node)))
        raise refused(node, f"this of {_name(x.kind)}")

    def compare(self, op: type[ast.cmpop], a: Typed, b: Typed, node: ast.expr) -> Typed:
        """Write a comparison."""
        sign = _SIGNS.get(op)
        if sign is None:
            raise refused(node, "this comparison")
        kind = self.shared(a, b, node)
        left, right = (self.cast(value, kind, node) for value in (a, b))
        if kind.is_float:
            # Of comparisons with NaN only `!=` is true.
            ordered, unordered = self.builder.fcmp_ordered, self.builder.fcmp_unordered
            return Typed(BOOL, (unordered if sign == "!=" else ordered)(sign, left, right))
        write = self.builder.icmp_signed if kind.signed else self.builder.icmp_unsigned
        return Typed(BOOL, write(sign, left, right))

    def cast(self, value: Typed, kind: Kind, node: ast.AST) -> Values:
        """Write the conversion of a value to what somebody takes."""
        source, raw, builder = value.kind, value.raw, self.builder
        if source == kind:
            return raw
        if (
            isinstance(source, Scalar)
            and isinstance(kind, Scalar)
            and NOTHING not in (source, kind)
        ):
            if kind.is_float and source.is_float:
                return (builder.fpext if kind == FLOAT64 else builder.fptrunc)(raw, kind.llvm)
            if kind.is_float:
                return (builder.sitofp if source.signed else builder.uitofp)(raw, kind.llvm)
            if kind.is_integer and source.is_float:
                return (builder.fptosi if kind.signed else builder.fptoui)(raw, kind.llvm)
            if kind.is_integer and source == BOOL:
                return builder.zext(raw, kind.llvm)
            if kind.is_integer and source.is_integer:
                if kind.bits == source.bits:
                    return raw
                if kind.bits < source.bits:
                    return builder.trunc(raw, kind.llvm)
                return (builder.sext if source.signed else builder.zext)(raw, kind.llvm)
        if isinstance(source, Tuple) and isinstance(kind, Tuple):
            kinds = zip(source.elements, kind.elements, strict=True)
            parts = [
                self.cast(Typed(given, builder.extract_value(raw, number)), wanted, node)
                for number, (given, wanted) in enumerate(kinds)
            ]
            return pack(builder, parts)
        raise refused(node, f"{_name(source)} as {_name(kind)}")


_WHOLE: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_LOGIC: dict[type[ast.operator], str] = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_FLOATING: dict[type[ast.operator], str] = {
    ast.Add: "fadd",
    ast.Sub: "fsub",
    ast.Mult: "fmul",
    ast.Div: "fdiv",
}
_OVERFLOWING = (ast.Add, ast.Sub, ast.Mult)
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _constant(value: object, node: ast.expr) -> Typed:
    if isinstance(value, bool):
        return Typed(BOOL, ir.Constant(BOOL.llvm, int(value)))
    if isinstance(value, int):
        kind = INT64 if -(1 << 63) <= value < 1 << 63 else UINT64
        return Typed(kind, ir.Constant(kind.llvm, value))
    if isinstance(value, float):
        return Typed(FLOAT64, ir.Constant(FLOAT64.llvm, value))
    raise refused(node, "this value")


def _name(kind: Kind) -> str:
    if isinstance(kind, Scalar):
        return kind.code
    return f"({', '.join(map(_name, kind.elements))})"


def refused(node: ast.AST, what: str) -> TextError:
    """Return the error that says what of a node is too much."""
    return TextError(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}: {what}")
