"""Element types and the type of an expression.

A *storage* type is what an array holds; a *compute* type is what arithmetic happens in: bool, i64,
u64, f32 or f64. Storage types smaller than that become their compute type when they are loaded, and
only a cast that the user wrote rounds back to them.
"""

from __future__ import annotations

from typing import Literal

from redlang.values import dataclass

DKind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type, by its name in the language."""

    name: str
    kind: DKind
    bits: int

    @property
    def bytes(self) -> int:
        """Return the bytes of one element in memory."""
        return max(self.bits, 8) // 8

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        """Come back from a pickle, such as the disk cache's, as the one object of that name."""
        return _named, (self.name,)


def _named(name: str) -> DType:
    return DTYPES[name]


BOOL = DType("bool", "bool", 1)
I8, I16, I32, I64 = (DType(f"i{n}", "int", n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{n}", "uint", n) for n in (8, 16, 32, 64))
F8E4M3 = DType("f8e4m3", "float", 8)
F8E5M2 = DType("f8e5m2", "float", 8)
F16 = DType("f16", "float", 16)
BF16 = DType("bf16", "float", 16)
F32 = DType("f32", "float", 32)
F64 = DType("f64", "float", 64)

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        *(BOOL, I8, I16, I32, I64, U8, U16, U32, U64),
        *(F8E4M3, F8E5M2, F16, BF16, F32, F64),
    )
}


def compute_type(dtype: DType) -> DType:
    """Return the type in which values of `dtype` are computed and accumulated (contract K4)."""
    match dtype.kind:
        case "bool":
            return BOOL
        case "int":
            return I64
        case "uint":
            return U64 if dtype is U64 else I64
        case "float":
            return F64 if dtype is F64 else F32


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression.

    Attributes:
        dtype: A compute type: bool, i64, u64, f32 or f64.
        axes: The axes that the value varies with, in the kernel's order of axes.
        absent: Whether elements may be absent.
        weak: Whether the value yields to the other operand's type: literals, scalar parameters,
            captured numbers, indices and sizes.
    """

    dtype: DType
    axes: tuple[str, ...] = ()
    absent: bool = False
    weak: bool = False
