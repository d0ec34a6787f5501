"""Elements of shared tiles that are not finite: taken out, and found again."""

from __future__ import annotations

EXPONENTS = {"bf16": 0x7F80, "f16": 0x7C00, "f32": 0x7F800000}
"""The bits of the exponent: all of them set where a number is not finite."""
_PIECE = 16
_WORD = 4
