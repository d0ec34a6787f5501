"""The names that the language itself gives a meaning, and nearest matches for misspelled ones."""

from __future__ import annotations

import difflib
import importlib
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

OWN_LINE = " on a line of its own, then "
"""Stands in a hint between a definition and the expression that reads it."""

_SOFT = "where(1 + e == 1, e, log(1 + e) * e / ((1 + e) - 1))"
"""log(1 + e) for e from 0 to 1: the quotient makes up for what 1 + e loses."""

RENAMED: dict[str, str] = {
    "power": "x ** y",
    "pow": "x ** y",
    "norm": "sqrt(sum[n](x * x))",
    "nansum": "sum[n](where(isnan(x), 0, x))",
    "nanprod": "prod[n](where(isnan(x), 1, x))",
    **{
        f"nan{name}": f"{name}[n](where(~isnan(x), x)), which leaves NaN out"
        for name in ("max", "min", "mean", "argmax", "argmin")
    },
    **{
        f"nan{name}": f"std.{name}[n](where(~isnan(x), x)), after `from redlang import std`"
        for name in ("var", "std")
    },
    "softplus": f"e = exp(-abs(x)){OWN_LINE}maximum(x, 0) + {_SOFT}",
    "logaddexp": f"e = where(x == y, 1, exp(-abs(x - y))){OWN_LINE}maximum(x, y) + {_SOFT}",
    "logsigmoid": f"e = exp(-abs(x)){OWN_LINE}minimum(x, 0) - {_SOFT}",
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
    "nan_to_num": "where(isnan(x), 0, x), which keeps inf",
    "log1p": "where(1 + x == 1, x, log(1 + x) * where(x < 1, x / ((1 + x) - 1), 1)), "
    "exact for small x too",
    "expm1": "tanh(x / 2) * (exp(x) + 1), exact for small x too",
    "log10": "log(x) / log(10)",
    "exp10": "10 ** x",
    "cosh": "2 * ((exp(x / 2) + exp(-x / 2)) / 2) ** 2 - 1",
    "sinh": "2 * tanh(x / 2) * ((exp(x / 2) + exp(-x / 2)) / 2) ** 2",
    "tan": "sin(x) / cos(x)",
    "sinc": "where(x == 0, 1, sin(pi * (x - 2 * round(x / 2))) / (pi * x))",
    "hypot": f"a = maximum(abs(x), abs(y)){OWN_LINE}"
    "where(a == 0 or a == inf, a, a * sqrt((x / a) ** 2 + (y / a) ** 2))",
    "softsign": "where(abs(x) == inf, sign(x), x / (1 + abs(x)))",
    "silu": "x * sigmoid(x)",
    "gelu": "x * ((1 + erf(x / sqrt(2))) / 2)",
    "dot": "sum[k](a * b)",
    "matmul": "sum[k](a * b)",
    "einsum": "sum[k](a * b)",
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

MISSING: dict[str, str] = (
    dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "scan"),
        "there are no scans; over a short axis, y = x[l] on a line of its own, then "
        "sum[l](where(l <= n, y)), is one",
    )
    | dict.fromkeys(
        ("sort", "argsort", "median", "quantile", "percentile", "unique"),
        "of the order of elements there are min, max, argmin, argmax and topk",
    )
    | dict.fromkeys(
        ("asin", "acos", "atan", "atan2", "arcsin", "arccos", "arctan", "arctan2"),
        "of trigonometric functions there are sin and cos",
    )
)
"""What people look for, and what there is instead."""

LIBRARY_NAMES = {
    "variance": "var",
    "stddev": "std",
    "stdev": "std",
    "cov": "covariance",
}
"""Other names of functions in the library."""

ELEMENT_TYPES = "bool, i8 … i64, u8 … u64, f8e4m3, f8e5m2, f16, bf16, f32, f64"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` is most likely a misspelling of."""
    pool = sorted(set(candidates) - {name})
    close = difflib.get_close_matches(name, pool, n=5, cutoff=0.6)
    matches = [match for match in close if _alike(name, match)]
    if not matches:
        folded = {candidate.lower(): candidate for candidate in pool}
        matches = [folded[name.lower()]] if name.lower() in folded else []
    return matches[0] if matches else None


def _alike(name: str, other: str) -> bool:
    """Tell whether two names differ by a slip: one letter in three, or a shortened end.

    Letters that both have in the same order do not suffice: `later` and `tern` share three.
    """
    shorter, longer = sorted((name, other), key=len)
    if len(shorter) > 2 and longer.startswith(shorter):
        return True
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(name, start=1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and name[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1] <= max(1, len(longer) // 3)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the nearest match, or nothing."""
    if name in RENAMED:
        return f"redlang writes {RENAMED[name]}"
    if name in MISSING:
        return MISSING[name]
    match = nearest(name, candidates)
    return f"did you mean {match}?" if match else ""


def library() -> tuple[str, ...]:
    """Return the names in the library, which is written in the language and hence above it."""
    return getattr(importlib.import_module("redlang.std"), "__all__", ())


def in_library(name: str) -> bool:
    """Tell whether a function of the library is known by that name, and no builtin is."""
    return name not in BUILTINS and LIBRARY_NAMES.get(name, name) in library()


def no_function(name: str, candidates: Iterable[str]) -> str:
    """Return a hint for a call of what is not there: the library's, or the nearest match."""
    if name in BUILTINS:
        return f"use redlang's own {name}"
    if name in RENAMED or name in MISSING:
        return did_you_mean(name, ())
    known = set(library()) - BUILTINS
    name = LIBRARY_NAMES.get(name, name)
    meant = name if name in known else nearest(name, {*candidates, *known})
    if meant in known:
        imported = "after `from redlang import std` (for text: compile(..., names={'std': std}))"
        return f"the library has it: std.{meant}, {imported}"
    return f"did you mean {meant}?" if meant else ""
