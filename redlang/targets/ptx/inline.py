"""The words of generated text: how an instruction becomes a typed function.

A *tile* is a tuple of registers of one compute type, and a tile of one element is the plain scalar.
Generated text never sees this file; it calls the intrinsics that the files beside it build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from llvmlite import ir

from redlang.targets.kinds import (
    F32,
    F64,
    I16,
    I32,
    I64,
    LLVM_TYPES,
    SCALARS,
    Kind,
    Signature,
    tuple_of,
)

if TYPE_CHECKING:
    from redlang.targets.ptx.calls import Body

Values: TypeAlias = Any
"""One or several LLVM values, which have no types of Python."""

Generate: TypeAlias = Callable[[ir.IRBuilder, Values], Values]
Typed: TypeAlias = tuple[Signature, Generate] | None
"""A signature and what emits its code; None where the argument types do not fit."""

REGISTER_LETTERS = {I16: "h", I32: "r", I64: "l", F32: "f", F64: "d"}


def i32(value: int) -> ir.Constant:
    """Return a constant of 32 bits."""
    return ir.Constant(I32, value)


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
) -> Word:
    """Return a word that is one PTX statement on scalars.

    Args:
        name: What tracebacks call it.
        result: Type code of the result, or `void`.
        arguments: Type codes of the arguments; values are cast to them.
        text: PTX with `$0` for the result (if any), then the arguments.
        constraints: LLVM's register classes, result first.
        effect: Whether the statement touches memory or other threads.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        return asm(builder, LLVM_TYPES[result], text, constraints, values, effect=effect)

    return define(name, result, arguments, generate)


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """What generated text may call.

    Attributes:
        name: What error messages call it.
        arity: Number of its arguments.
        typed: From the arguments' types to signature and code.
        body: The function that it stands for, if that is generated too.
    """

    name: str
    arity: int
    typed: Callable[..., Typed]
    body: Body | None = None

    def emit(self, builder: ir.IRBuilder, *values: ir.Value) -> Values:
        """Emit a call of a word of fixed types."""
        typed = self.typed()
        assert typed is not None
        return typed[1](builder, values)


def define(
    name: str,
    result: Kind | str,
    arguments: Sequence[Kind | str],
    generate: Generate,
    body: Body | None = None,
) -> Word:
    """Return a word of fixed types, or their codes; arguments are cast to them."""
    kinds = [SCALARS[kind] if isinstance(kind, str) else kind for kind in (result, *arguments)]
    signature = Signature(kinds[0], tuple(kinds[1:]))
    return Word(name, len(arguments), lambda *given: (signature, generate), body)


def define_generic(name: str, arity: int, typed: Callable[..., Typed]) -> Word:
    """Return a word whose types follow from its arguments': `typed(*kinds)`."""
    return Word(name, arity, typed)


def tile_type(code: str, count: int) -> Kind:
    """Return the type of a tile of `count` elements."""
    return tuple_of([SCALARS[code]] * count)


def unpack(builder: ir.IRBuilder, value: ir.Value, count: int) -> list[ir.Value]:
    """Return the elements of a tile."""
    if count == 1:
        return [value]
    return [builder.extract_value(value, number) for number in range(count)]


def pack(builder: ir.IRBuilder, elements: Sequence[ir.Value]) -> ir.Value:
    """Return the tile of these elements, or the tuple of these tiles."""
    if len(elements) == 1:
        return elements[0]
    parts = [element.type for element in elements]
    alike = all(part == parts[0] for part in parts)
    kind = ir.ArrayType(parts[0], len(parts)) if alike else ir.LiteralStructType(parts)
    tile = ir.Constant(kind, ir.Undefined)
    for number, element in enumerate(elements):
        tile = builder.insert_value(tile, element, number)
    return tile


def unseen(builder: ir.IRBuilder, kind: ir.Type, bits: int = 0) -> ir.Value:
    """Return a value that LLVM does not know, if registers hold the type; else zero.

    With a constant it would compute what follows a load beside the load.
    """
    letter = REGISTER_LETTERS.get(kind)
    if letter is None:
        return ir.Constant(kind, None)
    width = 64 if kind in (I64, F64) else 16 if kind is I16 else 32
    return asm(builder, kind, f"mov.b{width} $0, {hex(bits)};", f"={letter}", [])


def unless_passed(
    builder: ir.IRBuilder,
    test: ir.Value,
    make: Callable[[], Sequence[ir.Value]],
    nothing: ir.Value,
) -> list[ir.Value]:
    """Return what is made in a basic block of its own; where a test fails, `nothing` for each."""
    before = builder.block
    with builder.if_then(test):
        found = make()
        inside = builder.block
    joined = [builder.phi(value.type) for value in found]
    for phi, value in zip(joined, found, strict=True):
        phi.add_incoming(value, inside)
        phi.add_incoming(nothing, before)
    return joined
