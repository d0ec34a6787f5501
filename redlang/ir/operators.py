"""Element functions and reductions as data: names, arity and typing.

What they mean on numbers stands in `interpret.py`, what they obey in `algebra/operators.py`, how a
target spells them in `codegen/scalars.py`. A test walks the four tables and fails where one lacks
an entry.
"""

from __future__ import annotations

from typing import Literal

from redlang.values import dataclass

Rule = Literal["arithmetic", "real", "compare", "logic", "test", "where", "power"]


@dataclass(frozen=True, slots=True)
class Operator:
    """An element function.

    Attributes:
        name: Its name in `Apply.op`.
        arity: Number of arguments.
        rule: How the result's type follows from the arguments':
            arithmetic: their promotion; real: their promotion, at least f32; compare and
            test: bool; logic: bool or integer; where: the promotion of the last two;
            power: arithmetic for an integer base and a non-negative literal exponent, else real.
        symbol: The infix or prefix form in the language, empty for functions.
        public: Whether the language has it as a function of this name.
    """

    name: str
    arity: int
    rule: Rule
    symbol: str = ""
    public: bool = True


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("add", 2, "arithmetic", "+", public=False),
        Operator("sub", 2, "arithmetic", "-", public=False),
        Operator("mul", 2, "arithmetic", "*", public=False),
        Operator("div", 2, "real", "/", public=False),
        Operator("floordiv", 2, "arithmetic", "//", public=False),
        Operator("mod", 2, "arithmetic", "%", public=False),
        Operator("pow", 2, "power", "**", public=False),
        Operator("neg", 1, "arithmetic", "-", public=False),
        Operator("eq", 2, "compare", "==", public=False),
        Operator("ne", 2, "compare", "!=", public=False),
        Operator("lt", 2, "compare", "<", public=False),
        Operator("le", 2, "compare", "<=", public=False),
        Operator("gt", 2, "compare", ">", public=False),
        Operator("ge", 2, "compare", ">=", public=False),
        Operator("and", 2, "logic", "&", public=False),
        Operator("or", 2, "logic", "|", public=False),
        Operator("xor", 2, "logic", "^", public=False),
        Operator("not", 1, "logic", "~", public=False),
        Operator("exp", 1, "real"),
        Operator("exp2", 1, "real"),
        Operator("log", 1, "real"),
        Operator("log2", 1, "real"),
        Operator("sqrt", 1, "real"),
        Operator("rsqrt", 1, "real"),
        Operator("abs", 1, "arithmetic"),
        Operator("sign", 1, "arithmetic"),
        Operator("tanh", 1, "real"),
        Operator("sigmoid", 1, "real"),
        Operator("erf", 1, "real"),
        Operator("sin", 1, "real"),
        Operator("cos", 1, "real"),
        Operator("floor", 1, "arithmetic"),
        Operator("ceil", 1, "arithmetic"),
        Operator("round", 1, "arithmetic"),
        Operator("minimum", 2, "arithmetic"),
        Operator("maximum", 2, "arithmetic"),
        Operator("clip", 3, "arithmetic"),
        Operator("where", 3, "where"),
        Operator("isnan", 1, "test"),
        # Not in the language: incremental forms and normalised programs use them.
        Operator("isfinite", 1, "test", public=False),
        Operator("ldexp", 2, "real", public=False),
    )
}
SIGNED = frozenset(("add", "sub", "mul", "floordiv", "mod", "pow", "neg"))
"""Arithmetic of elements that all integers do in int64, and wrap there: a difference of uint64 has
a sign."""

REDUCTIONS: tuple[str, ...] = (
    "sum",
    "prod",
    "max",
    "min",
    "any",
    "all",
    "count",
    "argmax",
    "argmin",
    "topk",
)
"""Reductions of the reduction IR; the language also has `mean`, a sum over a count."""
