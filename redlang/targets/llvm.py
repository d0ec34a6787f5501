"""A thin layer over llvmlite's builder, so that formulas read like formulas.

A `Value` is an LLVM value together with the builder that extends it. Arithmetic picks the
instruction by the value's type, Python numbers become constants of the other
operand's type, and `intrinsic` turns a function of values into something that Numba text can call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic as numba_intrinsic

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()

# Neither Numba nor llvmlite is typed; these names say what is meant.
NumbaType: TypeAlias = Any
Context: TypeAlias = Any
Signature: TypeAlias = Any
Raw: TypeAlias = Any
"""An LLVM value, or several."""

Intrinsic: TypeAlias = Any
Generate: TypeAlias = Callable[[Context, ir.IRBuilder, Signature, Raw], Raw]
Typed: TypeAlias = tuple[Signature, Generate] | None
"""A signature and what emits its code; None where the argument types do not fit."""

Number: TypeAlias = "Value | int | float"


class Value:
    """An LLVM value that knows how to compute with itself."""

    __slots__ = ("builder", "raw", "unsigned")

    def __init__(self, builder: ir.IRBuilder, raw: ir.Value, *, unsigned: bool = False) -> None:
        self.builder = builder
        self.raw = raw
        self.unsigned = unsigned

    @property
    def type(self) -> ir.Type:
        """Return the LLVM type."""
        return self.raw.type

    @property
    def is_float(self) -> bool:
        """Say whether this is a floating-point value or a vector of them."""
        element = self.type.element if isinstance(self.type, ir.VectorType) else self.type
        return isinstance(element, (ir.HalfType, ir.FloatType, ir.DoubleType))

    def wrap(self, raw: ir.Value) -> Value:
        """Return `raw` as a value built by the same builder, as signed as this one."""
        return Value(self.builder, raw, unsigned=self.unsigned)

    def constant(self, number: float) -> Value:
        """Return `number` as a constant of this value's type."""
        return self.wrap(ir.Constant(self.type, number))

    def like(self, other: Number) -> ir.Value:
        """Return the raw value of `other`, numbers as constants of this value's type."""
        return other.raw if isinstance(other, Value) else self.constant(other).raw

    def call(self, name: str, *others: Number, flags: tuple[str, ...] = ()) -> Value:
        """Call LLVM's intrinsic `name`, overloaded on this type, on this value and `others`."""
        arguments = [self.raw, *map(self.like, others)]
        kind = ir.FunctionType(self.type, [argument.type for argument in arguments])
        function = declared(self.builder.module, f"llvm.{name}.{mangled(self.type)}", kind)
        return self.wrap(self.builder.call(function, arguments, fastmath=flags))

    def __add__(self, other: Number) -> Value:
        build = self.builder.fadd if self.is_float else self.builder.add
        return self.wrap(build(self.raw, self.like(other)))

    def __sub__(self, other: Number) -> Value:
        build = self.builder.fsub if self.is_float else self.builder.sub
        return self.wrap(build(self.raw, self.like(other)))

    def __rsub__(self, other: float) -> Value:
        return self.constant(other) - self

    def __mul__(self, other: Number) -> Value:
        build = self.builder.fmul if self.is_float else self.builder.mul
        return self.wrap(build(self.raw, self.like(other)))

    def __truediv__(self, other: Number) -> Value:
        return self.wrap(self.builder.fdiv(self.raw, self.like(other)))

    def __rtruediv__(self, other: float) -> Value:
        return self.constant(other) / self

    def __neg__(self) -> Value:
        return self.wrap((self.builder.fneg if self.is_float else self.builder.neg)(self.raw))

    def __abs__(self) -> Value:
        if self.is_float:
            return self.call("fabs")
        if self.unsigned:
            return self
        return self.call("abs", Value(self.builder, ir.Constant(I1, 0)))

    def __and__(self, other: Number) -> Value:
        return self.wrap(self.builder.and_(self.raw, self.like(other)))

    def __or__(self, other: Number) -> Value:
        return self.wrap(self.builder.or_(self.raw, self.like(other)))

    def __xor__(self, other: Number) -> Value:
        return self.wrap(self.builder.xor(self.raw, self.like(other)))

    def __lshift__(self, other: Number) -> Value:
        return self.wrap(self.builder.shl(self.raw, self.like(other)))

    def __rshift__(self, other: Number) -> Value:
        """Shift right and keep the sign."""
        return self.wrap(self.builder.ashr(self.raw, self.like(other)))

    def shift_in_zeros(self, other: Number) -> Value:
        """Shift right and fill with zeros."""
        return self.wrap(self.builder.lshr(self.raw, self.like(other)))

    def _compare(self, sign: str, other: Number) -> Value:
        if self.is_float:
            # Python's `!=` is true for NaN, every other comparison false.
            build = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        else:
            build = self.builder.icmp_unsigned if self.unsigned else self.builder.icmp_signed
        return self.wrap(build(sign, self.raw, self.like(other)))

    def __lt__(self, other: Number) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Number) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Number) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Number) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Number) -> Value:
        """Return whether this equals `other`."""
        return self._compare("==", other)

    def differs(self, other: Number) -> Value:
        """Return whether this differs from `other`; NaN differs from everything."""
        return self._compare("!=", other)

    def is_nan(self) -> Value:
        """Return whether this is NaN."""
        return self.wrap(self.builder.fcmp_unordered("uno", self.raw, self.raw))

    def choose(self, yes: Number, no: Number) -> Value:
        """Return `yes` where this condition holds, else `no`; one of them must be a value."""
        model = yes if isinstance(yes, Value) else no
        assert isinstance(model, Value)
        return self.wrap(self.builder.select(self.raw, model.like(yes), model.like(no)))

    def times_plus(self, factor: Number, summand: Number) -> Value:
        """Return this * factor + summand, fused where the machine can."""
        return self.call("fmuladd", factor, summand)

    def at_least(self, bound: float) -> Value:
        """Return this, or `bound` where this is smaller; NaN stays."""
        return (self < bound).choose(bound, self)

    def at_most(self, bound: float) -> Value:
        """Return this, or `bound` where this is larger; NaN stays."""
        return (self > bound).choose(bound, self)

    def bits(self) -> Value:
        """Return the float's bits as an integer of the same width."""
        return self.wrap(self.builder.bitcast(self.raw, _twin(self.type)))

    def from_bits(self) -> Value:
        """Return the integer's bits as a float of the same width."""
        return self.wrap(self.builder.bitcast(self.raw, _twin(self.type)))

    def with_sign_of(self, other: Value) -> Value:
        """Return this magnitude with the sign of `other`."""
        return self.call("copysign", other)

    def to_float(self, kind: ir.Type) -> Value:
        """Convert to the float type `kind`."""
        if self.type == kind:
            return self
        if not self.is_float:
            unsigned = self.unsigned or self.type == I1
            build = self.builder.uitofp if unsigned else self.builder.sitofp
            return Value(self.builder, build(self.raw, kind))
        widen = _width(self.type) < _width(kind)
        build = self.builder.fpext if widen else self.builder.fptrunc
        return self.wrap(build(self.raw, kind))

    def sign_extend(self, kind: ir.Type) -> Value:
        """Widen a signed integer."""
        return self.wrap(self.builder.sext(self.raw, kind))

    def zero_extend(self, kind: ir.Type) -> Value:
        """Widen an unsigned integer."""
        return self.wrap(self.builder.zext(self.raw, kind))

    def truncate(self, kind: ir.Type) -> Value:
        """Keep the low bits of an integer."""
        return self.wrap(self.builder.trunc(self.raw, kind))

    def saturate(self, kind: ir.IntType, *, signed: bool = True) -> Value:
        """Convert a float to an integer: toward zero, saturating, NaN to 0."""
        name = "fptosi" if signed else "fptoui"
        full_name = f"llvm.{name}.sat.{mangled(kind)}.{mangled(self.type)}"
        function = declared(self.builder.module, full_name, ir.FunctionType(kind, [self.type]))
        return self.wrap(self.builder.call(function, [self.raw]))


def polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """Return c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.times_plus(x, coefficient)
    return result


def declared(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    """Return the function `name` of a module, declared when it is first asked for."""
    return module.globals.get(name) or ir.Function(module, kind, name)


def declare_scope(module: ir.Module, scope: str) -> None:
    """Make an alias scope known to the accesses that follow."""
    module.__dict__.setdefault("redlang_scopes", {}).setdefault(scope, None)


def set_scope(module: ir.Module, instruction: ir.Instruction, scope: str) -> None:
    """Say which scope an access belongs to, and that it touches none of the others.

    Of two accesses it is enough that the later one names the other's scope, so scopes that come up
    later are no loss. Strings identify domain and scopes, as LLVM's manual allows, so that the
    metadata of inlined callees meets.
    """
    domain = module.add_metadata(["redlang"])

    def node(names: list[str]) -> ir.Value:
        return module.add_metadata([module.add_metadata([name, domain]) for name in names])

    declare_scope(module, scope)
    instruction.set_metadata("alias.scope", node([scope]))
    others = [name for name in module.redlang_scopes if name != scope]
    if others:
        instruction.set_metadata("noalias", node(others))


def mangled(kind: ir.Type) -> str:
    """Return a type's name inside the name of an overloaded LLVM intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{mangled(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {HALF: "f16", F32: "f32", F64: "f64"}[kind]


def _width(kind: ir.Type) -> int:
    if isinstance(kind, ir.IntType):
        return int(kind.width)
    return {HALF: 16, F32: 32, F64: 64}[kind]


def _twin(kind: ir.Type) -> ir.Type:
    """Return the integer type as wide as a float type, or the other way round."""
    return {HALF: I16, F32: I32, F64: I64, I16: HALF, I32: F32, I64: F64}[kind]


def intrinsic(
    name: str,
    arity: int,
    result: Callable[..., NumbaType],
    emit: Callable[..., Value],
) -> Intrinsic:
    """Return something that Numba text can call.

    Args:
        name: What error messages call it.
        arity: Number of arguments.
        result: From the arguments' Numba types to the result's, None if they do not fit.
        emit: From the arguments' values to the result's.
    """

    def typing(context: Context, *operands: NumbaType) -> Typed:
        returned = result(*operands)
        if returned is None:
            return None

        def generate(
            context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
        ) -> Raw:
            values = (
                Value(builder, raw, unsigned=kind in types.unsigned_domain)
                for raw, kind in zip(arguments, operands, strict=True)
            )
            return emit(*values).raw

        return returned(*operands), generate

    typing.__name__ = name
    # Numba reads the arity off the signature.
    names = ["context", *(f"x{i}" for i in range(arity))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(each, kind) for each in names]
    typing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return numba_intrinsic(typing)
