"""Loads and stores of tiles in global memory: 16-byte accesses, cache hints, guarded tails.

Addresses are 64-bit; offsets inside a tile are constants in the instruction. A guarded piece is one
predicated instruction. Where the end of an axis may fall inside a piece, elements are moved one by
one behind a branch that whole warps skip.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llvmlite import ir

from redlang.targets.kinds import F32, I8, I16, I32, I64, VOID, Kind
from redlang.targets.ptx.access import Access, Piece, pieces
from redlang.targets.ptx.convert import COMPUTE_CODES, STORAGE_BITS, decode, encode
from redlang.targets.ptx.guards import bounds_from, guarded, guarded_start
from redlang.targets.ptx.inline import (
    REGISTER_LETTERS,
    Values,
    Word,
    asm,
    define,
    pack,
    tile_type,
    unless_passed,
    unpack,
    unseen,
)

LOAD_HINTS = {
    # Read once: keep it out of L1, whose space the block's other loads need.
    "stream": "ld.global.nc.L1::no_allocate",
    # The same, beside results that L2 cannot hold: these leave it first, and in order.
    "last": "ld.global.nc.L1::no_allocate",
    "keep": "ld.global.nc",
    # Memory that other blocks write in the same launch: never through the read-only path.
    "coherent": "ld.relaxed.gpu.global",
    "plain": "ld.global",
}
POLICIES = {"last": "createpolicy.fractional.L2::evict_last.b64 $0;"}
"""What else L2 is told of a load."""
PREDICATES = 6
"""Guarded loads for which there are predicates beside one for another test."""
STORE_HINTS = {"stream": "st.global.cs", "plain": "st.global"}


def load(access: Access, *, hint: str = "stream", fill: float = 0, native_f8: bool = True) -> Word:
    """Return a function that loads a tile.

    Its arguments: the address of the thread's first element (i64), the runtime steps in bytes
    (i64 each), then for each guard `left` and, with `head`, `low` (i32). Elements that are not
    there hold `fill`.
    """
    code = COMPUTE_CODES[access.dtype]
    bits = fill_bits(access.dtype, fill)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements: list[ir.Value | None] = [None] * access.count
        for piece, words in _load_pieces(builder, access, hint, bits, values):
            found = [x for word in words for x in decode(builder, access.dtype, word, native_f8)]
            for place, element in zip(piece.places, found, strict=True):
                elements[place] = element
        return pack(builder, [element for element in elements if element is not None])

    return define(
        f"load_{access.dtype}", tile_type(code, access.count), access_kinds(access), generate
    )


def load_stored(access: Access, *, hint: str = "stream", fill: float = 0) -> Word:
    """Return a function that loads a tile as it is stored, in 32-bit words; arguments as `load`."""
    bits = fill_bits(access.dtype, fill)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        every = _load_pieces(builder, access, hint, bits, values)
        return pack(builder, [word for _, words in every for word in words])

    return define(
        f"load_stored_{access.dtype}",
        tile_type("i32", stored_words(access)),
        access_kinds(access),
        generate,
    )


def stored_words(access: Access) -> int:
    """Return how many 32-bit words a tile takes as it is stored; its pieces are words."""
    word, words = word_type(access)
    assert word is I32, access
    return words * access.count // access.width


def computed(access: Access, first: int = 0, whole: int = 0, *, native_f8: bool = True) -> Word:
    """Return a function that makes elements of what `load_stored` has loaded.

    Its second argument is a zero that no compiler knows (i32): elements made with another zero are
    made anew, so that they need not be kept meanwhile.

    Args:
        access: How the elements, all or some of those that were loaded, lie in memory.
        first: The word that the first of them begins with.
        whole: How many words were loaded; 0 if no more than the elements take.
        native_f8: Whether the target converts f8 itself.
    """
    code = COMPUTE_CODES[access.dtype]
    _, words = word_type(access)
    whole = whole or stored_words(access)

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        stored, zero = unpack(builder, values[0], whole)[first:], values[1]
        elements: list[ir.Value | None] = [None] * access.count
        for number, piece in enumerate(pieces(access)):
            own = stored[number * words : (number + 1) * words]
            if access.dtype == "bf16":
                found = [x for word in own for x in _anew_bf16(builder, word, zero)]
            else:
                made = [builder.or_(word, zero) for word in own]
                found = [x for word in made for x in decode(builder, access.dtype, word, native_f8)]
            for place, element in zip(piece.places, found, strict=True):
                elements[place] = element
        return pack(builder, [element for element in elements if element is not None])

    kinds = [tile_type("i32", whole), "i32"]
    return define(f"computed_{access.dtype}", tile_type(code, access.count), kinds, generate)


def _anew_bf16(builder: ir.IRBuilder, word: ir.Value, zero: ir.Value) -> list[ir.Value]:
    """Return a word's two elements, one instruction each."""
    shift = builder.or_(zero, ir.Constant(I32, 16))
    mask = builder.or_(zero, ir.Constant(I32, 0xFFFF0000))
    halves = (builder.shl(word, shift), builder.and_(word, mask))
    return [builder.bitcast(half, F32) for half in halves]


def prefetch(access: Access, count: int) -> Word:
    """Return a function that has the first pieces of a tile brought to L2.

    Its arguments are those of `load`, then whether the thread asks for its pieces.
    """

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        # A constant condition folds away.
        with builder.if_then(values[-1]):
            for piece in itertools.islice(pieces(access), count):
                address, guards = access_arguments(builder, access, piece, values)
                text = f"prefetch.global.L2 [$0+{piece.offset}];"
                if access.guards:
                    text = guarded_start(access, piece, bounds_from(access, 1), text)
                constraints = ",".join(["l"] + ["r"] * len(guards))
                asm(builder, VOID, text, constraints, [address, *guards], effect=True)

    return define(f"prefetch_{access.dtype}", "void", [*access_kinds(access), "bool"], generate)


def store(access: Access, *, hint: str = "plain", native_f8: bool = True) -> Word:
    """Return a function that rounds a tile to the storage type and stores it.

    Its arguments are those of `load`, then whether the thread stores at all, then the tile.
    """
    code = COMPUTE_CODES[access.dtype]

    def generate(builder: ir.IRBuilder, values: Values) -> Values:
        elements = unpack(builder, values[-1], access.count)
        # A constant condition folds away.
        with builder.if_then(values[-2]):
            own, given = one_guard(builder, access, values)
            for piece in pieces(own):
                address, guards = access_arguments(builder, own, piece, given)
                chosen = [elements[place] for place in piece.places]
                words = _words_of(builder, own, chosen, native_f8)
                _store_piece(builder, own, piece, hint, [address, *guards], words)

    kinds = [*access_kinds(access), "bool", tile_type(code, access.count)]
    return define(f"store_{access.dtype}", "void", kinds, generate)


def fill_bits(dtype: str, value: float) -> int:
    """Return the bits of a filling value: zero, or an infinity of a floating type."""
    if value == 0:
        return 0
    infinities = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
    infinities["f8e5m2"] = 0x7C
    sign = 1 << (STORAGE_BITS[dtype] - 1) if value < 0 else 0
    return infinities[dtype] | sign


def access_kinds(access: Access) -> list[Kind | str]:
    """Return the types of what says where a tile lies: address, steps, bounds."""
    return ["i64", *["i64"] * access.runtime_steps, *["i32"] * len(access.guard_arguments)]


def access_arguments(
    builder: ir.IRBuilder, access: Access, piece: Piece, values: Sequence[ir.Value]
) -> tuple[ir.Value, list[ir.Value]]:
    """Return a piece's address without its constant offset, and the guards' arguments."""
    address = values[0]
    for coefficient, step in zip(piece.coefficients, values[1:], strict=False):
        if coefficient:
            distance = builder.mul(step, ir.Constant(I64, coefficient))
            address = builder.add(address, distance)
    first = 1 + access.runtime_steps
    return address, list(values[first : first + len(access.guard_arguments)])


def one_guard(
    builder: ir.IRBuilder, access: Access, values: Sequence[ir.Value]
) -> tuple[Access, Sequence[ir.Value]]:
    """Return a tile of fewer guards: one that all pieces pass alike goes into one that they do not.

    Predicates are few: with two for each of many loads, the next loads wait for the first.
    """
    walked = {dimension.axis for dimension in access.along}
    others = [g for g in access.guards if g.axis in walked or g.ragged or g.head]
    fixed = [g for g in access.guards if g not in others]
    if not fixed or not others:
        return access, values
    first = 1 + access.runtime_steps
    given = dict(zip(access.guard_arguments, values[first:], strict=False))
    there = [builder.icmp_signed(">=", given[f"left.{g.axis}"], ir.Constant(I32, 1)) for g in fixed]
    left = f"left.{others[0].axis}"
    given[left] = builder.select(
        functools.reduce(builder.and_, there), given[left], ir.Constant(I32, 0)
    )
    own = replace(access, guards=tuple(others))
    return own, [*values[:first], *(given[name] for name in own.guard_arguments)]


def word_type(access: Access) -> tuple[ir.IntType, int]:
    """Return the register type that a piece is moved in, and how many it takes."""
    size = STORAGE_BITS[access.dtype]
    bits = size * access.width
    if size == 64:
        return I64, access.width
    if bits >= 32:
        return I32, bits // 32
    return (I16, 1) if bits == 16 else (I8, 1)


def _suffix(word: ir.IntType, words: int) -> str:
    # A byte is moved through a 16-bit register.
    kind = "u8" if word is I8 else f"b{word.width}"
    return f".v{words}.{kind}" if words > 1 else f".{kind}"


def _register(word: ir.IntType) -> ir.IntType:
    return I16 if word is I8 else word


def _words_of(
    builder: ir.IRBuilder, access: Access, elements: Sequence[ir.Value], native_f8: bool
) -> list[ir.Value]:
    word, words = word_type(access)
    each = len(elements) // words
    packed = [
        encode(builder, access.dtype, elements[i * each : (i + 1) * each], native_f8)
        for i in range(words)
    ]
    return [builder.zext(bits, I16) for bits in packed] if word is I8 else packed


def _load_pieces(
    builder: ir.IRBuilder, access: Access, hint: str, fill: int, values: Sequence[ir.Value]
) -> Iterator[tuple[Piece, list[ir.Value]]]:
    """Load all pieces of a tile; yield the words of each.

    Many guarded loads stand in a block of their own, which a thread without elements passes by.
    Else `ptxas` computes tests of later uses ahead of the loads, and as predicates run out, each
    load waits for the use of the one before.
    """
    own, given = one_guard(builder, access, values)
    every = list(pieces(own))
    if len(every) <= PREDICATES or not own.guards or any(guard.head for guard in own.guards):
        for piece in every:
            yield piece, _load_piece(builder, own, piece, hint, fill, given)
        return
    nothing = _filled(builder, own, fill)

    def make() -> list[ir.Value]:
        found = (_load_piece(builder, own, piece, hint, fill, given) for piece in every)
        return [word for words in found for word in words]

    words = unless_passed(builder, _some(builder, own, every, given), make, nothing)
    each = len(words) // len(every)
    for number, piece in enumerate(every):
        yield piece, words[number * each : (number + 1) * each]


def _some(
    builder: ir.IRBuilder, access: Access, every: Sequence[Piece], given: Sequence[ir.Value]
) -> ir.Value:
    """Return whether any element of a thread's tile is there."""
    lefts = given[1 + access.runtime_steps :]
    least = [min(piece.reaches[guard.axis] for piece in every) for guard in access.guards]
    tests = [
        builder.icmp_signed(">", left, ir.Constant(I32, reach))
        for left, reach in zip(lefts, least, strict=True)
    ]
    return functools.reduce(builder.and_, tests)


def _filled(builder: ir.IRBuilder, access: Access, fill: int) -> ir.Value:
    """Return a word of elements that are not there."""
    word, _ = word_type(access)
    register = _register(word)
    found = unseen(builder, register, _repeat(fill, STORAGE_BITS[access.dtype], register.width))
    return builder.trunc(found, I8) if word is I8 else found


def _load_piece(
    builder: ir.IRBuilder,
    access: Access,
    piece: Piece,
    hint: str,
    fill: int,
    values: Sequence[ir.Value],
) -> list[ir.Value]:
    address, guards = access_arguments(builder, access, piece, values)
    arguments = [address, *guards]
    word, words = word_type(access)
    register = _register(word)
    outputs = [f"${number}" for number in range(words)]
    operand = "{" + ", ".join(outputs) + "}" if words > 1 else outputs[0]
    policy = [asm(builder, I64, POLICIES[hint], "=l", [])] if hint in POLICIES else []
    told = f", ${words + len(arguments)}" if policy else ""
    opcode = LOAD_HINTS[hint] + (".L2::cache_hint" if policy else "")
    text = f"{opcode}{_suffix(word, words)} {operand}, [${words}+{piece.offset}]{told};"
    if access.guards:
        filled = hex(_repeat(fill, STORAGE_BITS[access.dtype], word.width))
        before = [f"mov.b{register.width} {output}, {filled};" for output in outputs]
        bounds = bounds_from(access, words + 1)
        single = functools.partial(_load_element, access, piece, hint, outputs)
        text = guarded(access, piece, bounds, text, single, before)
    letter = REGISTER_LETTERS[register]
    # Early-clobber: a filled output is written before the address is read.
    constraints = [f"=&{letter}"] * words + ["l"] + ["r"] * (len(arguments) - 1)
    constraints += ["l"] * len(policy)
    result = register if words == 1 else ir.LiteralStructType([register] * words)
    given = [*arguments, *policy]
    raw = asm(builder, result, text, ",".join(constraints), given, effect=True)
    found = [raw] if words == 1 else [builder.extract_value(raw, i) for i in range(words)]
    return [builder.trunc(value, I8) for value in found] if word is I8 else found


def _store_piece(
    builder: ir.IRBuilder,
    access: Access,
    piece: Piece,
    hint: str,
    arguments: Sequence[ir.Value],
    values: Sequence[ir.Value],
) -> None:
    word, words = word_type(access)
    register = _register(word)
    inputs = [f"${len(arguments) + number}" for number in range(words)]
    operand = "{" + ", ".join(inputs) + "}" if words > 1 else inputs[0]
    text = f"{STORE_HINTS[hint]}{_suffix(word, words)} [$0+{piece.offset}], {operand};"
    if access.guards:
        single = functools.partial(_store_element, access, piece, hint, inputs)
        text = guarded(access, piece, bounds_from(access, 1), text, single)
    letters = ["l"] + ["r"] * (len(arguments) - 1) + [REGISTER_LETTERS[register]] * words
    constraints = ",".join([*letters, "~{memory}"])
    asm(builder, VOID, text, constraints, [*arguments, *values], effect=True)


def _repeat(bits: int, size: int, width: int) -> int:
    total = 0
    for shift in range(0, width, size):
        total |= bits << shift
    return total


def _slot(access: Access, words: Sequence[str], number: int) -> tuple[str, int]:
    """Return the word that holds an element of a piece, and the element's first bit there."""
    per_word = access.width // len(words)
    return words[number // per_word], number % per_word * STORAGE_BITS[access.dtype]


def _load_element(
    access: Access, piece: Piece, hint: str, words: Sequence[str], number: int
) -> list[str]:
    size = STORAGE_BITS[access.dtype]
    word, bit = _slot(access, words, number)
    source = f"[${len(words)}+{piece.offset + number * size // 8}]"
    if size >= 32:
        return [f"@p {LOAD_HINTS[hint]}.b{size} {word}, {source};"]
    kind = "u8" if size == 8 else "b16"
    return [
        f"@p {LOAD_HINTS[hint]}.{kind} h, {source};",
        "@p cvt.u32.u16 t, h;",
        f"@p bfi.b32 {word}, t, {word}, {bit}, {size};",
    ]


def _store_element(
    access: Access, piece: Piece, hint: str, words: Sequence[str], number: int
) -> list[str]:
    size = STORAGE_BITS[access.dtype]
    word, bit = _slot(access, words, number)
    target = f"[$0+{piece.offset + number * size // 8}]"
    if size >= 32:
        return [f"@p {STORE_HINTS[hint]}.b{size} {target}, {word};"]
    kind = "u8" if size == 8 else "b16"
    return [
        f"shr.b32 t, {word}, {bit};",
        "cvt.u16.u32 h, t;",
        f"@p {STORE_HINTS[hint]}.{kind} {target}, h;",
    ]
