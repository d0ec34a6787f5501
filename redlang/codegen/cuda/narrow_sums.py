"""Folds of integers in 32 bits, where what arrays store says that no result needs more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from redlang.codegen.cuda.folds import Folding, folding, summed_in
from redlang.codegen.cuda.frame import Frame
from redlang.ir import walk
from redlang.ir.loops import Fold
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load
from redlang.ir.types import DType

LARGEST = (1 << 31) - 1
SHORT, WORD = 16, 32
"""Bits of the stored integers whose sums and extremes may be found in 32 bits."""


def plain_folding(frame: Frame, statement: Fold) -> Folding:
    """Return how a reduction without indices works, in 32 bits where that is enough."""
    element = statement.values[0].type.dtype
    how = folding(statement.op, statement.types, element)
    if how.codes != ("i64",) or element.name != "i64" or statement.op not in ("sum", "max", "min"):
        return how
    if statement.op != "sum":
        if _turns_sign(statement.values[0]):
            return how
        if _is_word(frame, statement.values[0]) and _has_elements(frame, statement):
            return _in_words(how, statement.op)
    largest = magnitude(frame, statement.values[0])
    terms = prod(frame.spread(axis).extent for axis in statement.over)
    if largest is None or largest * (terms if statement.op == "sum" else 1) >= LARGEST:
        return how
    return summed_in(how, "i32") if statement.op == "sum" else _in_extremes(how, statement.op)


def _turns_sign(expr: Expr) -> bool:
    """Tell whether a value may be the negative of another.

    `ptxas` makes one instruction (VIMNMX3) of two extremes in 32 bits, and at times forgets that an
    operand of the first was negated. Those of 64 bits are comparisons.
    """
    return any(
        isinstance(node, Apply) and node.op in ("neg", "abs", "sub", "mul")
        for node in walk.nodes(expr)
    )


def _is_word(frame: Frame, expr: Expr) -> bool:
    """Tell whether a value is what an array stores in 32 bits with a sign."""
    while isinstance(expr, Cast) and expr.to.kind == "int" and expr.to.bits >= WORD:
        expr = expr.operand
    dtype = frame.memories[expr.array].dtype if isinstance(expr, Load) else None
    return dtype is not None and (dtype.kind, dtype.bits) == ("int", WORD)


def _has_elements(frame: Frame, statement: Fold) -> bool:
    """Tell whether something takes part in any case."""
    return statement.condition is None and frame.classes.filled.issuperset(statement.over)


def magnitude(frame: Frame, expr: Expr) -> int | None:
    """Return a bound of an integer's magnitude, None if there is none below that of its type."""
    match expr:
        case Literal(value=int(value)):
            return abs(value)
        case Index(axis=axis):
            return frame.classes.limits.get(axis)
        case Load(array=array):
            return _of_type(frame.memories[array].dtype)
        case Cast(to=to, operand=operand):
            real = operand.type.dtype.kind == "float" or to.kind == "float"
            inside = None if real else magnitude(frame, operand)
            return min((m for m in (_of_type(to), inside) if m is not None), default=None)
        case Apply(op="abs" | "neg", arguments=(operand,)):
            return magnitude(frame, operand)
        case Apply(op="where", arguments=(_, *chosen)):
            return _both(frame, chosen, max)
        case Apply(op="add" | "sub", arguments=(a, b)):
            return _both(frame, (a, b), sum)
        case Apply(op="mul", arguments=(a, b)):
            return _both(frame, (a, b), prod)
        case _:
            return None


def _of_type(dtype: DType) -> int | None:
    if dtype.kind == "float" or dtype.bits > SHORT:
        return None
    return 1 << (dtype.bits - (dtype.kind == "int"))


def _both(frame: Frame, exprs: Sequence[Expr], bound: Callable[[list[int]], int]) -> int | None:
    found = [magnitude(frame, expr) for expr in exprs]
    known = [each for each in found if each is not None]
    return bound(known) if len(known) == len(found) else None


def _in_words(how: Folding, op: str) -> Folding:
    """Where something takes part, the neutral value may be one that elements have."""
    return replace(
        how,
        codes=("i32",),
        neutral=(f"i32({-LARGEST - 1 if op == 'max' else LARGEST})",),
        lift=lambda value: ([], [f"to_i32({value})"]),
        combine=lambda a, b: ([], [f"{op}imum({a}, {b})"]),
        finish=lambda value: ([], [f"to_i64({value})"]),
    )


def _in_extremes(how: Folding, op: str) -> Folding:
    """Nothing has a neutral value that no element has; it becomes that of 64 bits at the end."""
    neutral = f"i32({-LARGEST if op == 'max' else LARGEST})"
    return replace(
        how,
        codes=("i32",),
        neutral=(neutral,),
        lift=lambda value: ([], [f"to_i32({value})"]),
        combine=lambda a, b: ([], [f"{op}imum({a}, {b})"]),
        finish=lambda value: (
            [],
            [f"select({value} == {neutral}, {how.neutral[0]}, to_i64({value}))"],
        ),
    )
