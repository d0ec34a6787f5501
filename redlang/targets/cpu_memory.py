"""Typed memory for Numba text: pointers that know their element type and what they may alias.

    x = pointer("f16", "x", addresses[0])       # storage type, alias scope, address
    y = load(x, i)                              # float32, the compute type
    store(pointer("bf16", "o", addresses[1]), i, y)
    row = offset(x, r * stride)

Pointers of different scopes never overlap (LLVM's scoped alias metadata says so), which lets LLVM
vectorise loops over any number of arrays without run-time overlap checks. A loop whose index runs
by 1 through `load(p, i)` is loaded by whole vectors.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, register_model

from redlang.targets.cpu_numbers import COMPUTED, STORED, decode, encode
from redlang.targets.llvm import (
    I64,
    Context,
    NumbaType,
    Raw,
    Signature,
    Typed,
    Value,
    declare_scope,
    set_scope,
)


class Pointer(types.Type):
    """The Numba type of an address of elements of one storage type, in one alias scope."""

    def __init__(self, dtype: str, scope: str) -> None:
        self.dtype = dtype
        self.scope = scope
        super().__init__(name=f"pointer({dtype}, {scope})")


@register_model(Pointer)
class _PointerModel(PrimitiveModel):
    """A pointer is its address."""

    def __init__(self, manager: Context, kind: Pointer) -> None:
        super().__init__(manager, kind, I64)  # type: ignore[no-untyped-call]  # Numba's


@intrinsic(prefer_literal=True)
def pointer(context: Context, dtype: NumbaType, scope: NumbaType, address: NumbaType) -> Typed:
    """Return a pointer to elements of type `dtype` at `address`; the first two are literals."""
    if not isinstance(dtype, types.StringLiteral) or not isinstance(scope, types.StringLiteral):
        return None
    result = Pointer(dtype.literal_value, scope.literal_value)

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        declare_scope(builder.module, result.scope)
        return arguments[2]

    return result(dtype, scope, types.uint64), generate


@intrinsic
def load(context: Context, base: NumbaType, index: NumbaType) -> Typed:
    """Return element `index`, converted to its compute type."""
    if not isinstance(base, Pointer) or not isinstance(index, types.Integer):
        return None

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        address = _element(builder, base, *arguments)
        raw = builder.load(address, align=_align(base.dtype))
        set_scope(builder.module, raw, base.scope)
        return decode(Value(builder, raw), base.dtype).raw

    return COMPUTED[base.dtype](base, types.int64), generate


@intrinsic
def store(context: Context, base: NumbaType, index: NumbaType, value: NumbaType) -> Typed:
    """Round `value`, of any compute type, to the element type and write it at `index`."""
    if not isinstance(base, Pointer) or not isinstance(index, types.Integer):
        return None
    unsigned = value in types.unsigned_domain

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        where, index, raw = arguments
        encoded = encode(Value(builder, raw, unsigned=unsigned), base.dtype).raw
        address = _element(builder, base, where, index)
        written = builder.store(encoded, address, align=_align(base.dtype))
        set_scope(builder.module, written, base.scope)
        return context.get_dummy_value()

    return types.void(base, types.int64, value), generate


@intrinsic
def offset(context: Context, base: NumbaType, count: NumbaType) -> Typed:
    """Return the pointer `count` elements further on."""
    if not isinstance(base, Pointer) or not isinstance(count, types.Integer):
        return None

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        # Plain arithmetic: on the way to an element a pointer may stand outside its array.
        address, count = arguments
        return builder.add(address, builder.mul(count, ir.Constant(I64, _align(base.dtype))))

    return base(base, types.int64), generate


@intrinsic
def address_of(context: Context, base: NumbaType) -> Typed:
    """Return the pointer's address as a number."""
    if not isinstance(base, Pointer):
        return None

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        return arguments[0]

    return types.uint64(base), generate


def _element(builder: ir.IRBuilder, base: Pointer, address: Raw, index: Raw) -> Raw:
    typed = builder.inttoptr(address, STORED[base.dtype].as_pointer())
    return builder.gep(typed, [index], inbounds=True)


def _align(dtype: str) -> int:
    kind = STORED[dtype]
    if isinstance(kind, ir.IntType):
        return int(kind.width) // 8
    return 8 if isinstance(kind, ir.DoubleType) else 4
