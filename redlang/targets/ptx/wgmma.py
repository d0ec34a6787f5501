"""Hopper's warp-group matrix products, and what has to stand around them.

`product` issues one tile's product as one statement: fence, all instructions, commit. Accumulators
and register operands pass through every statement that orders them, so that neither LLVM nor
`ptxas` can move their uses across it; a product that `ptxas` would have to serialise shows in the
tests as a `Potential Performance Loss`.

Sources: PTX ISA, "Asynchronous warpgroup matrix multiply-accumulate", compute capability 9.0a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from redlang.schedule.fragments import (
    STEP,
    STEP_BYTES,
    SharedTile,
    accumulators,
    left_operands,
)
from redlang.targets.kinds import F32, I32, VOID, Kind, tuple_of
from redlang.targets.ptx.inline import (
    Values,
    Word,
    asm,
    define,
    instruction,
    pack,
    tile_type,
    unpack,
)

_MEMORY = "~{memory}"
_INTEGERS = {"i8": "s8", "u8": "u8"}


@dataclass(frozen=True, slots=True)
class Product:
    """The product of one tile: 64 rows of `left` times `columns` columns of `right`.

    Attributes:
        dtype: Type of both operands, `f16` or `bf16`; or of each, `i8` or `u8`, the left one's
            first: their sums are integers of 32 bits.
        columns: A multiple of 8, at most 256; of 16 for integers.
        contracted: Extent of the contracted axis, a multiple of 16; of 32 for integers.
        right: How the right operand lies in shared memory.
        left: How the left operand does, or None if it comes in registers.
        accumulate: Whether to add to the accumulators.
        rows_first: The order of fragments.
    """

    dtype: str
    columns: int
    contracted: int
    right: SharedTile
    left: SharedTile | None = None
    accumulate: bool = False
    rows_first: bool = True

    @property
    def integers(self) -> bool:
        """Say whether accumulators are integers."""
        return " " in self.dtype

    @property
    def step(self) -> int:
        """Return the elements of the contracted axis that one instruction takes."""
        return STEP_BYTES if self.integers else STEP

    @property
    def name(self) -> str:
        """Return the shape and the types of the instruction."""
        shape = f"m64n{self.columns}k{self.step}"
        if not self.integers:
            return f"{shape}.f32.{self.dtype}.{self.dtype}"
        return f"{shape}.s32." + ".".join(_INTEGERS[part] for part in self.dtype.split())


def product(shape: Product) -> Word:
    """Return a function that issues a product and commits it as one group.

    Its arguments: the accumulators if `shape.accumulate`, the left operand (its address in shared
    memory, or the registers that `operand` packs), the address of the right operand. It returns
    the accumulators, which must go through `wait` before anything reads them.
    """
    count = shape.columns // 2
    registers = 0 if shape.left is not None else shape.contracted // 4
    fragment = tile_type("i32" if shape.integers else "f32", count)
    kinds: list[Kind | str] = [fragment] if shape.accumulate else []
    kinds += ["u32" if shape.left is not None else tile_type("i32", registers), "u32"]
    order = _order(shape.columns, shape.rows_first)
    element = I32 if shape.integers else F32
    text = _text(shape)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        *before, left, right = values
        if before:
            given = unpack(builder, before[0], count)
            held = [given[place] for place in order]
        else:
            held = [ir.Constant(element, ir.Undefined)] * count
        operands = [left] if shape.left is not None else unpack(builder, left, registers)
        constraints = ["=r" if shape.integers else "=f"] * count + [
            str(number) for number in range(count)
        ]
        constraints += ["r"] * (len(operands) + 1) + [_MEMORY]
        result = ir.LiteralStructType([element] * count)
        arguments = [*held, *operands, right]
        raw = asm(builder, result, text, ",".join(constraints), arguments, effect=True)
        return _arranged(builder, raw, order)

    return define("product", fragment, kinds, generate)


def _order(columns: int, rows_first: bool) -> list[int]:
    """Return, for each accumulator, which element of a fragment it is."""
    return [place.index(columns, rows_first=rows_first) for place in accumulators(columns)]


def _arranged(builder: ir.IRBuilder, raw: ir.Value, order: Sequence[int]) -> ir.Value:
    found: list[ir.Value | None] = [None] * len(order)
    for number, place in enumerate(order):
        found[place] = builder.extract_value(raw, number)
    return pack(builder, [value for value in found if value is not None])


def _text(shape: Product) -> str:
    """Return the PTX of a whole product: addresses to descriptors, then one instruction a step."""
    count = shape.columns // 2
    first = 2 * count
    steps = shape.contracted // shape.step
    lines = [
        ".reg .pred add, none;",
        ".reg .b32 word;",
        ".reg .b64 left, right, l, r;",
        "mov.b32 word, 0;",
        "setp.eq.u32 add, word, 0;",
        "setp.ne.u32 none, word, 0;",
    ]
    registers = 1 if shape.left is not None else shape.contracted // 4
    if shape.left is not None:
        lines += _descriptor("left", f"${first}", shape.left)
    lines += _descriptor("right", f"${first + registers}", shape.right)
    lines.append("wgmma.fence.sync.aligned;")
    outputs = ", ".join(f"${number}" for number in range(count))
    for step in range(steps):
        if shape.left is not None:
            lines.append(f"add.s64 l, left, {shape.left.step_offset(step) >> 4};")
            left = "l"
            flags = f"1, 1, {int(not shape.left.contracted)}, {int(not shape.right.contracted)}"
            # Integers have neither signs to turn nor transposed operands.
            flags = "" if shape.integers else f", {flags}"
        else:
            words = (f"${first + 4 * step + number}" for number in range(4))
            left = "{" + ", ".join(words) + "}"
            flags = f", 1, 1, {int(not shape.right.contracted)}"
        lines.append(f"add.s64 r, right, {shape.right.step_offset(step) >> 4};")
        added = "add" if step or shape.accumulate else "none"
        lines.append(
            f"wgmma.mma_async.sync.aligned.{shape.name} {{{outputs}}}, {left}, r, {added}{flags};"
        )
    lines.append("wgmma.commit_group.sync.aligned;")
    return "{ " + " ".join(lines) + " }"


def _descriptor(name: str, address: str, tile: SharedTile) -> list[str]:
    """Return PTX that makes a matrix descriptor of a shared-memory address."""
    return [
        f"shr.u32 word, {address}, 4;",
        "and.b32 word, word, 0x3FFF;",
        f"cvt.u64.u32 {name}, word;",
        f"or.b64 {name}, {name}, {hex(tile.descriptor())};",
    ]


def operand(dtype: str, columns: int, *, rows_first: bool = True) -> Word:
    """Return a function that rounds a fragment to 16 bits and packs it as a left operand."""
    pairs = left_operands(columns)
    kind = "bf16x2" if dtype == "bf16" else "f16x2"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements = unpack(builder, values[0], columns // 2)
        words = []
        for pair in pairs:
            low, high = (elements[p.index(columns, rows_first=rows_first)] for p in pair)
            text = f"cvt.rn.{kind}.f32 $0, $1, $2;"
            words.append(asm(builder, I32, text, "=r,f,f", [high, low]))
        return pack(builder, words)

    result = tile_type("i32", columns // 4)
    return define("operand", result, [tile_type("f32", columns // 2)], generate)


def wait(pending: int, *counts: int, codes: Sequence[str] = ()) -> Word:
    """Return a function that waits until at most `pending` committed products are in flight.

    Args:
        pending: Products that may go on; only those issued since the last `wait(0)`.
        *counts: Registers of the fragments that pass through: those that are now complete.
        codes: What they hold, f32 if not given.

    Returns:
        A function of the fragments that returns them (a tuple if there are several).
    """
    total = sum(counts)
    codes = codes or ["f32"] * len(counts)
    kinds = [tile_type(code, count) for code, count in zip(codes, counts, strict=True)]
    text = f"wgmma.wait_group.sync.aligned {pending};"

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements = [
            element
            for value, count in zip(values, counts, strict=True)
            for element in unpack(builder, value, count)
        ]
        passed = through(builder, text, elements)
        tiles = []
        for count in counts:
            tiles.append(pack(builder, passed[:count]))
            passed = passed[count:]
        return pack(builder, tiles) if tiles else None

    result = tuple_of(kinds) if total else "void"
    return define("wait", result, kinds, generate)


def through(builder: ir.IRBuilder, text: str, elements: Sequence[ir.Value]) -> list[ir.Value]:
    """Emit a statement that all these f32 or i32 registers pass through unchanged."""
    if not elements:
        asm(builder, VOID, text, _MEMORY, [], effect=True)
        return []
    letters = ["f" if element.type == F32 else "r" for element in elements]
    constraints = [f"={letter}" for letter in letters]
    constraints += [*map(str, range(len(elements))), _MEMORY]
    if len(elements) == 1:
        kind = elements[0].type
        return [asm(builder, kind, text, ",".join(constraints), elements, effect=True)]
    result = ir.LiteralStructType([element.type for element in elements])
    raw = asm(builder, result, text, ",".join(constraints), elements, effect=True)
    return [builder.extract_value(raw, number) for number in range(len(elements))]


def claim_registers(count: int) -> Word:
    """Return a statement with which a warp group raises its registers a thread to `count`."""
    text = f"setmaxnreg.inc.sync.aligned.u32 {count};"
    return instruction("claim_registers", "void", (), text, _MEMORY, effect=True)


def release_registers(count: int) -> Word:
    """Return a statement with which a warp group lowers its registers a thread to `count`."""
    text = f"setmaxnreg.dec.sync.aligned.u32 {count};"
    return instruction("release_registers", "void", (), text, _MEMORY, effect=True)
