"""Inline PTX in Numba kernels: how an instruction becomes a typed function.

A *tile* is a tuple of registers of one compute type, and a tile of one element is the plain scalar.
Generated text never sees this file; it calls the intrinsics that the files beside it build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir

from redlang.targets.numba_cuda import intrinsic, types

# Neither Numba nor llvmlite is typed; these names say what is meant.
NumbaType: TypeAlias = Any
Context: TypeAlias = Any
Intrinsic: TypeAlias = Any
Values: TypeAlias = Any
"""One or several LLVM values."""

Generate: TypeAlias = Callable[[Context, ir.IRBuilder, NumbaType, Values], Values]
Typed: TypeAlias = tuple[NumbaType, Generate] | None
"""A signature and what emits its code; None where the argument types do not fit."""

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()

NUMBA_TYPES: dict[str, NumbaType] = {
    "bool": types.boolean,
    "i32": types.int32,
    "u32": types.uint32,
    "i64": types.int64,
    "u64": types.uint64,
    "f32": types.float32,
    "f64": types.float64,
    "void": types.void,
}
LLVM_TYPES: dict[str, ir.Type] = {
    "bool": I1,
    "i32": I32,
    "u32": I32,
    "i64": I64,
    "u64": I64,
    "f32": F32,
    "f64": F64,
    "void": VOID,
}
REGISTER_LETTERS = {I16: "h", I32: "r", I64: "l", F32: "f", F64: "d"}


def asm(
    builder: ir.IRBuilder,
    result: ir.Type,
    text: str,
    constraints: str,
    arguments: Sequence[ir.Value],
    *,
    effect: bool = False,
) -> Values:
    """Emit one inline-PTX statement; with `effect` it is neither moved, merged nor dropped."""
    shape = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.asm(shape, text, constraints, arguments, effect)


def instruction(
    name: str, result: str, arguments: Sequence[str], text: str, constraints: str, *, effect: bool
) -> Intrinsic:
    """Return an intrinsic that is one PTX statement on scalars.

    Args:
        name: What tracebacks call it.
        result: Type code of the result, or `void`.
        arguments: Type codes of the arguments; Numba values are cast to them.
        text: PTX with `$0` for the result (if any), then the arguments.
        constraints: LLVM's register classes, result first.
        effect: Whether the statement touches memory or other threads.
    """

    def generate(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
    ) -> Values:
        raw = asm(builder, LLVM_TYPES[result], text, constraints, values, effect=effect)
        return context.get_dummy_value() if result == "void" else raw

    return define(name, result, arguments, generate)


def define(
    name: str, result: NumbaType, arguments: Sequence[NumbaType], generate: Generate
) -> Intrinsic:
    """Return an intrinsic of fixed types; codes or Numba types, arguments are cast to them."""
    returns = NUMBA_TYPES.get(result, result) if isinstance(result, str) else result
    wanted = [NUMBA_TYPES[kind] if isinstance(kind, str) else kind for kind in arguments]

    def typed(typing_context: Context, *given: NumbaType) -> Typed:
        return returns(*wanted), generate

    return _with_arity(name, len(wanted), typed)


def define_generic(name: str, arity: int, typed: Callable[..., Typed]) -> Intrinsic:
    """Return an intrinsic whose types follow from its arguments': `typed(context, *types)`."""
    return _with_arity(name, arity, typed)


def _with_arity(name: str, arity: int, typed: Callable[..., Typed]) -> Intrinsic:
    # Numba reads an intrinsic's parameters from its code, so each arity needs its own text.
    parameters = ", ".join(["typing_context", *(f"a{number}" for number in range(arity))])
    namespace: dict[str, Any] = {"typed": typed}
    exec(f"def wrapper({parameters}):\n    return typed({parameters})\n", namespace)
    namespace["wrapper"].__name__ = name
    return intrinsic(namespace["wrapper"])


def tile_type(code: str, count: int) -> NumbaType:
    """Return the Numba type of a tile of `count` elements."""
    element = NUMBA_TYPES[code]
    return element if count == 1 else types.UniTuple(element, count)


def unpack(builder: ir.IRBuilder, value: ir.Value, count: int) -> list[ir.Value]:
    """Return the elements of a tile."""
    if count == 1:
        return [value]
    return [builder.extract_value(value, number) for number in range(count)]


def pack(builder: ir.IRBuilder, elements: Sequence[ir.Value]) -> ir.Value:
    """Return the tile of these elements."""
    if len(elements) == 1:
        return elements[0]
    tile = ir.Constant(ir.ArrayType(elements[0].type, len(elements)), ir.Undefined)
    for number, element in enumerate(elements):
        tile = builder.insert_value(tile, element, number)
    return tile
