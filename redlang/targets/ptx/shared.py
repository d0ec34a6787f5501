"""Shared memory by offset: scalars and tiles of compute types.

All of it is dynamic; the launch says how much. A kernel cuts it by offsets that its generator
chose.
"""

from __future__ import annotations

from llvmlite import ir

from redlang.targets.kinds import I1, I8, I32, I64, LLVM_TYPES, VOID
from redlang.targets.ptx.inline import (
    REGISTER_LETTERS,
    Values,
    Word,
    asm,
    define,
    pack,
    tile_type,
    unpack,
)

BYTES = {"bool": 4, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
"""Bytes that a value of each compute type takes in shared memory."""


def base(builder: ir.IRBuilder) -> ir.Value:
    """Emit the address of the dynamic shared memory."""
    module = builder.module
    known = module.globals.get("redlang_shared")
    if known is None:
        known = ir.GlobalVariable(module, ir.ArrayType(I8, 0), "redlang_shared", addrspace=3)
        known.linkage = "external"
        # Bulk copies with 128-byte swizzling need 1024; nothing needs more.
        known.align = 1024
    return builder.ptrtoint(known, I32)


def shared_load(code: str, count: int = 1) -> Word:
    """Return a function that loads a tile of neighbours, from an offset in bytes (i64)."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address = builder.add(base(builder), builder.trunc(values[0], I32))
        return pack(builder, load_at(builder, address, 0, code, count))

    return define(f"shared_load_{code}", tile_type(code, count), ("i64",), generate)


def shared_store(code: str, count: int = 1) -> Word:
    """Return a function that stores a tile: (offset i64, whether this thread does, tile)."""

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        address = builder.add(base(builder), builder.trunc(values[0], I32))
        with builder.if_then(values[1]):
            store_at(builder, address, 0, unpack(builder, values[2], count))

    kinds = ("i64", "bool", tile_type(code, count))
    return define(f"shared_store_{code}", "void", kinds, generate)


def load_at(
    builder: ir.IRBuilder, address: ir.Value, offset: int, code: str, count: int
) -> list[ir.Value]:
    """Emit loads of `count` neighbouring values; the first is aligned like the widest access."""
    kind = LLVM_TYPES[code]
    stored = I32 if kind == I1 else kind
    elements = []
    for start, width in _groups(count, BYTES[code]):
        found = load_words(builder, address, offset + start * BYTES[code], stored, width)
        elements += [_from_stored(builder, kind, value) for value in found]
    return elements


def store_at(
    builder: ir.IRBuilder,
    address: ir.Value,
    offset: int,
    elements: list[ir.Value],
    space: str = "shared",
) -> None:
    """Emit stores of neighbouring values; `space` is whose shared memory the address is in."""
    if elements[0].type == I1:
        elements = [builder.zext(element, I32) for element in elements]
    size = 8 if _width(elements[0].type) == 64 else 4
    for start, width in _groups(len(elements), size):
        chosen = elements[start : start + width]
        _store(builder, address, offset + start * size, chosen, space)


def _groups(count: int, size: int) -> list[tuple[int, int]]:
    """Cut `count` elements into accesses of up to 16 bytes: (first element, width)."""
    widest = 16 // size
    # A tile is aligned to its widest access only if its size is a multiple of it.
    while count % widest:
        widest //= 2
    return [(start, widest) for start in range(0, count, widest)]


def load_words(
    builder: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type, width: int
) -> list[ir.Value]:
    """Emit one load of neighbouring registers."""
    outputs = ", ".join(f"${number}" for number in range(width))
    operand = outputs if width == 1 else "{" + outputs + "}"
    vector = "" if width == 1 else f".v{width}"
    text = f"ld.shared{vector}.b{_width(kind)} {operand}, [${width}+{offset}];"
    constraints = ",".join([f"={REGISTER_LETTERS[kind]}"] * width + ["r", "~{memory}"])
    result = kind if width == 1 else ir.LiteralStructType([kind] * width)
    raw = asm(builder, result, text, constraints, [address], effect=True)
    return [raw] if width == 1 else [builder.extract_value(raw, i) for i in range(width)]


def _store(
    builder: ir.IRBuilder, address: ir.Value, offset: int, values: list[ir.Value], space: str
) -> None:
    width = len(values)
    kind = values[0].type
    inputs = ", ".join(f"${number + 1}" for number in range(width))
    operand = inputs if width == 1 else "{" + inputs + "}"
    vector = "" if width == 1 else f".v{width}"
    text = f"st.{space}{vector}.b{_width(kind)} [$0+{offset}], {operand};"
    constraints = ",".join(["r", *[REGISTER_LETTERS[kind]] * width, "~{memory}"])
    asm(builder, VOID, text, constraints, [address, *values], effect=True)


def _width(kind: ir.Type) -> int:
    return 64 if kind in (I64, LLVM_TYPES["f64"]) else 32


def _from_stored(builder: ir.IRBuilder, kind: ir.Type, value: ir.Value) -> ir.Value:
    if kind == I1:
        return builder.icmp_unsigned("!=", value, ir.Constant(I32, 0))
    return value
