"""Types of the values in generated CUDA text: scalars, tuples of them, and what words take.

They are all that the text can hold. How numbers of several types meet is NumPy's way with one
exception, which keeps addresses right: integers compute in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()

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


@dataclass(frozen=True, slots=True)
class Scalar:
    """A compute type, or `void` for what gives no value.

    Attributes:
        code: A key of `LLVM_TYPES`.
    """

    code: str

    @property
    def llvm(self) -> ir.Type:
        """Return how LLVM holds it."""
        return LLVM_TYPES[self.code]

    @property
    def is_float(self) -> bool:
        """Say whether it is `f32` or `f64`."""
        return self.code[0] == "f"

    @property
    def is_integer(self) -> bool:
        """Say whether it is an integer; a truth value is none."""
        return self.code[0] in "iu"

    @property
    def signed(self) -> bool:
        """Say whether it is an integer with a sign."""
        return self.code[0] == "i"

    @property
    def bits(self) -> int:
        """Return the width of a number."""
        return int(self.code[1:])


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple: the registers of a tile, or several values.

    Attributes:
        elements: The types of its elements.
    """

    elements: tuple[Kind, ...]

    @property
    def llvm(self) -> ir.Type:
        """Return how LLVM holds it: an array where that is possible."""
        parts = [element.llvm for element in self.elements]
        if all(part == parts[0] for part in parts):
            return ir.ArrayType(parts[0], len(parts))
        return ir.LiteralStructType(parts)

    @property
    def is_float(self) -> bool:
        """Say that it is no float."""
        return False

    is_integer = signed = is_float


Kind: TypeAlias = Scalar | Tuple


@dataclass(frozen=True, slots=True)
class Signature:
    """What a word gives for which arguments."""

    result: Kind
    arguments: tuple[Kind, ...]


SCALARS = {code: Scalar(code) for code in LLVM_TYPES}
BOOL, INT32, UINT32, INT64, UINT64 = (SCALARS[c] for c in ("bool", "i32", "u32", "i64", "u64"))
FLOAT32, FLOAT64, NOTHING = SCALARS["f32"], SCALARS["f64"], SCALARS["void"]


def tuple_of(elements: Iterable[Kind]) -> Kind:
    """Return the type of a tuple; one element stands for itself."""
    parts = tuple(elements)
    return parts[0] if len(parts) == 1 else Tuple(parts)


def count_of(kind: Kind) -> int:
    """Return the number of registers of a tile."""
    return len(kind.elements) if isinstance(kind, Tuple) else 1


def common(a: Kind, b: Kind) -> Kind | None:
    """Return the type in which two numbers meet, None where there is none without a loss."""
    if not (isinstance(a, Scalar) and isinstance(b, Scalar)) or NOTHING in (a, b):
        return None
    if a.is_float or b.is_float:
        return a if a == b else FLOAT64
    if UINT64 in (a, b):
        return UINT64 if not (a.signed or b.signed) else None
    return UINT64 if a == b == UINT32 else INT64
