"""The text around a kernel: what it declares at module level, each thing once."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.writer import Names

_HEADER = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *
"""

WORDS = frozenset(
    [
        "absolute",
        "cast_bf16",
        "cast_bool",
        "cast_f16",
        "cast_f32",
        "cast_f64",
        "cast_f8e4m3",
        "cast_f8e5m2",
        "cast_i16",
        "cast_i32",
        "cast_i64",
        "cast_i8",
        "cast_u16",
        "cast_u32",
        "cast_u64",
        "cast_u8",
        "ceil",
        "clip",
        "cos",
        "erf",
        "exp",
        "exp2",
        "exponent_of",
        "f32",
        "f64",
        "floor",
        "floor_divide",
        "fma",
        "i32",
        "i64",
        "inf",
        "is_finite",
        "is_nan",
        "ldexp",
        "log",
        "log2",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "mantissa_of",
        "maximum",
        "minimum",
        "modulo",
        "nan",
        "power",
        "reciprocal",
        "round_even",
        "rsqrt",
        "scale_of",
        "select",
        "short_exp",
        "short_sigmoid",
        "short_tanh",
        "sigmoid",
        "sign",
        "sin",
        "sqrt",
        "tanh",
        "to_bool",
        "to_f32",
        "to_f64",
        "to_i32",
        "to_i64",
        "to_u32",
        "to_u64",
        "u32",
        "u64",
    ]
)
"""The words of scalar text: what `redlang.targets.vocabulary` defines."""

_RESERVED = {"cuda", "t"}
_SHORT = (
    "# All results have 16 bits or fewer: what short forms are off by does not show.",
    "exp = short_exp",
    "tanh = short_tanh",
    "sigmoid = short_sigmoid",
    "",
)


class Module:
    """Collects the declarations of one generated module."""

    def __init__(self, *, short: bool = False) -> None:
        """Start a module; `short` lets words be as exact as 16-bit results can show."""
        self.names = Names({*_RESERVED, *WORDS})
        self._lines = list(_SHORT) if short else []
        self._known: dict[str, str] = {}

    def declare(self, base: str, value: str) -> str:
        """Return a name for a module-level value; equal values share one."""
        if value not in self._known:
            name = self._known[value] = self.names.fresh(base)
            self._lines.append(f"{name} = {value}")
        return self._known[value]

    def function(
        self,
        base: str,
        results: Sequence[str],
        arguments: Sequence[tuple[str, str]],
        lines: Sequence[str],
        returned: Sequence[str],
    ) -> str:
        """Return the name of a scalar function; equal functions share one.

        Args:
            base: What it is called after.
            results: Type codes of its results.
            arguments: Names and type codes of its arguments.
            lines: Its body.
            returned: Text of its results.
        """
        codes = ", ".join(repr(code) for _, code in arguments)
        kinds = repr(results[0]) if len(results) == 1 else repr(tuple(results))
        head = f"@t.function({kinds}{', ' if codes else ''}{codes})"
        signature = ", ".join(name for name, _ in arguments)
        body = [f"    {line}" for line in (*lines, f"return {', '.join(returned)}")]
        key = "\n".join([head, signature, *body])
        if key not in self._known:
            name = self._known[key] = self.names.fresh(base)
            self._lines += ["", "", head, f"def {name}({signature}):", *body, "", ""]
        return self._known[key]

    def text(self, kernel: Sequence[str]) -> str:
        """Return the whole module."""
        body = "\n".join([_HEADER, *self._lines, "", "", *kernel])
        while "\n\n\n\n" in body:
            body = body.replace("\n\n\n\n", "\n\n\n")
        return body + "\n"
