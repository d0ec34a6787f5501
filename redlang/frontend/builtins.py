"""The names that the language itself gives a meaning, and nearest matches for misspelled ones."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

from redlang.ir.operators import OPERATORS, REDUCTIONS
from redlang.ir.types import DTYPES

CONSTANTS: dict[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
ELEMENTS: dict[str, int] = {o.name: o.arity for o in OPERATORS.values() if o.public}
"""Element functions with their number of arguments; `where` also takes two."""
REDUCERS: tuple[str, ...] = (*REDUCTIONS, "mean")
SPECIAL: tuple[str, ...] = ("fill", "size", "axis")
SCALARS: dict[str, str] = {"float": "f32", "int": "i64"}
"""Names of scalar annotations, and the cast to write where one is called."""

BUILTINS: frozenset[str] = frozenset(
    (*CONSTANTS, *ELEMENTS, *REDUCERS, *SPECIAL, *DTYPES, *SCALARS)
)

RENAMED: dict[str, str] = {
    "power": "x ** y",
    "pow": "x ** y",
    "norm": "sqrt(sum[n](x * x))",
    "softplus": "log(1 + exp(x))",
    "relu": "maximum(x, 0)",
    "fabs": "abs",
    "square": "x ** 2",
    "ln": "log",
    "amax": "max",
    "amin": "min",
    "average": "mean",
    "len": "size",
    "shape": "size",
    "logistic": "sigmoid",
    "nan_to_num": "where(isnan(x), 0, x)",
    "log1p": "log(1 + x)",
    "expm1": "exp(x) - 1",
    "reciprocal": "1 / x",
    "isinf": "abs(x) == inf",
    "isfinite": "abs(x) < inf",
    "clamp": "clip",
    "absolute": "abs",
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "arange": "an axis name, which is its own index",
}
"""What people write from habit, and how redlang says it."""

ELEMENT_TYPES = "bool, i8 … i64, u8 … u64, f8e4m3, f8e5m2, f16, bf16, f32, f64"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` is most likely a misspelling of."""
    pool = sorted(set(candidates) - {name})
    matches = difflib.get_close_matches(name, pool, n=1, cutoff=0.6)
    if not matches and len(name) > 1:
        folded = {candidate.lower(): candidate for candidate in pool}
        matches = [folded[name.lower()]] if name.lower() in folded else []
    return matches[0] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the nearest match, or nothing."""
    if name in RENAMED:
        return f"redlang writes {RENAMED[name]}"
    match = nearest(name, candidates)
    return f"did you mean {match}?" if match else ""
