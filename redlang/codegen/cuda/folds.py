"""Reductions as states: what one element becomes, what joins two states, what comes out.

Everything is scalar text over `codegen.scalars`' words. A state is a few values of fixed types; an
element that takes no part becomes the neutral state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redlang.codegen.banks import apart
from redlang.codegen.cuda.frame import CODES
from redlang.codegen.cuda.values import constant
from redlang.codegen.scalars import arithmetic
from redlang.errors import InternalError
from redlang.ir.types import DType, Type

Lines = list[str]
Text = Callable[..., tuple[Lines, list[str]]]
"""Lines, and the texts of the results, for texts of the operands."""

BYTES = {"bool": 4, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
"""Bytes that a value of a type code takes in shared memory."""


@dataclass(frozen=True, slots=True)
class Folding:
    """How one reduction works on a target.

    Attributes:
        codes: Type codes of the state's values.
        neutral: Their texts for nothing at all.
        lift: From an element's values (and its index, if `indexed`) to a state.
        combine: From the values of a left and a right state to one.
        finish: From a state to the results.
        results: Type codes of the results.
        indexed: Whether `lift` takes the element's row-major index (i64) last.
        ordered: Whether the left state must hold the earlier elements.
    """

    codes: tuple[str, ...]
    neutral: tuple[str, ...]
    lift: Text
    combine: Text
    finish: Text
    results: tuple[str, ...]
    indexed: bool = False
    ordered: bool = False


def folding(op: str, types: Sequence[Type], element: DType) -> Folding:
    """Return how a reduction works.

    Args:
        op: A reduction of `ir.operators` without indices, or `mantissa`.
        types: The types of its results.
        element: The compute type of its operand.
    """
    code = CODES[types[0].dtype.name]
    match op:
        case "sum" if element.kind != "bool":
            dtype = types[0].dtype
            return _simple(code, constant(0, code), lambda a, b: arithmetic("add", a, b, dtype))
        case "prod" if element.kind != "float":
            dtype = types[0].dtype
            return _simple(code, constant(1, code), lambda a, b: arithmetic("mul", a, b, dtype))
        case "prod":
            return _product(code, scaled=True)
        case "mantissa":
            return _product(code, scaled=False)
        case "max":
            return _simple(code, _worst(element, code, "max"), lambda a, b: f"maximum({a}, {b})")
        case "min":
            return _simple(code, _worst(element, code, "min"), lambda a, b: f"minimum({a}, {b})")
        case "any" | "all":
            word = "logical_or" if op == "any" else "logical_and"
            return _truth(word, op == "all")
        case "count":
            return _count()
        case _:
            raise InternalError(f"no folding for {op!r} of {element}")


def summed_in(how: Folding, code: str) -> Folding:
    """Return a sum whose state is of another type: its terms become that, and its result back."""
    (own,) = how.results
    return replace(
        how,
        codes=(code,),
        neutral=(f"{code}(0)",),
        lift=lambda value: ([], [f"to_{code}({value})"]),
        combine=lambda a, b: ([], [f"{a} + {b}"]),
        finish=lambda value: ([], [f"to_{own}({value})"]),
    )


def side_by_side(members: Sequence[Folding]) -> Folding:
    """Return several reductions as one whose state holds all of theirs; only for `combine`."""
    counts = [len(how.codes) for how in members]

    def combine(*names: str) -> tuple[Lines, list[str]]:
        left, right = names[: sum(counts)], names[sum(counts) :]
        lines: Lines = []
        results: list[str] = []
        start = 0
        for how, count in zip(members, counts, strict=True):
            own = slice(start, start + count)
            added, found = how.combine(*left[own], *right[own])
            lines += added
            results += found
            start += count
        return lines, results

    return Folding(
        codes=tuple(code for how in members for code in how.codes),
        neutral=tuple(text for how in members for text in how.neutral),
        lift=lambda *values: ([], list(values)),
        combine=combine,
        finish=lambda *values: ([], list(values)),
        results=tuple(code for how in members for code in how.results),
    )


def _simple(code: str, neutral: str, join: Callable[[str, str], str]) -> Folding:
    return Folding(
        codes=(code,),
        neutral=(neutral,),
        lift=lambda value: ([], [value]),
        combine=lambda a, b: ([], [join(a, b)]),
        finish=lambda value: ([], [value]),
        results=(code,),
    )


def _truth(word: str, neutral: bool) -> Folding:
    return Folding(
        codes=("bool",),
        neutral=(str(neutral),),
        lift=lambda value: ([], [f"to_bool({value})"]),
        combine=lambda a, b: ([], [f"{word}({a}, {b})"]),
        finish=lambda value: ([], [value]),
        results=("bool",),
    )


def _count() -> Folding:
    # A tile has fewer than 2^31 elements, so it is counted in 32 bits.
    return Folding(
        codes=("i32",),
        neutral=("i32(0)",),
        lift=lambda value: ([], [f"to_i32(to_bool({value}))"]),
        combine=lambda a, b: ([], [f"{a} + {b}"]),
        finish=lambda value: ([], [f"to_i64({value})"]),
        results=("i64",),
    )


def _product(code: str, *, scaled: bool) -> Folding:
    """Keep mantissa and exponent apart, so that no partial product over- or underflows."""

    def lift(value: str) -> tuple[Lines, list[str]]:
        return [], [f"mantissa_of({value})", f"exponent_of({value})"]

    def combine(a: str, i: str, b: str, j: str) -> tuple[Lines, list[str]]:
        lines = [f"p = {a} * {b}"]
        return lines, ["mantissa_of(p)", f"{i} + {j} + exponent_of(p)"]

    def finish(mantissa: str, exponent: str) -> tuple[Lines, list[str]]:
        whole = [f"ldexp({mantissa}, {exponent})"]
        return [], whole if scaled else [mantissa, exponent]

    one = (constant(0.5, code), "i64(1)")
    results = (code,) if scaled else (code, "i64")
    return Folding((code, "i64"), one, lift, combine, finish, results)


def _worst(element: DType, code: str, op: str) -> str:
    """Return what every element beats: the identity of max or min."""
    if element.kind == "float":
        return constant(float("-inf" if op == "max" else "inf"), code)
    if element.kind == "bool":
        return str(op == "min")
    unsigned = code == "u64"
    low, high = (0, (1 << 64) - 1) if unsigned else (-(1 << 63), (1 << 63) - 1)
    return constant(low if op == "max" else high, code)


def ranks_before(
    one: Sequence[str], other: Sequence[str], element: DType, name: str, *, largest: bool
) -> Lines:
    """Return lines that set `name` to whether an entry ranks before another.

    An entry is a value and its index, -1 for nothing. NaN ranks before every number, the better
    number before others, the smaller index before larger ones, nothing last.
    """
    (a, i), (b, j) = one, other
    better = f"{a} {'>' if largest else '<'} {b}"
    equal = f"{a} == {b}"
    if element.kind == "float":
        better = f"logical_or({better}, logical_and(is_nan({a}), logical_not(is_nan({b}))))"
        better = f"logical_and({better}, logical_not(is_nan({b})))"
        equal = f"logical_or({equal}, logical_and(is_nan({a}), is_nan({b})))"
    return [
        f"{name} = logical_or({better}, logical_and({equal}, {i} < {j}))",
        f"{name} = logical_and({i} >= 0, logical_or({j} < 0, {name}))",
    ]


def warp_bytes(codes: Sequence[str], count: int, peers: int) -> int:
    """Return the shared bytes that one group of threads needs for `t.warps` or `t.blocks`."""
    return apart(sum(BYTES[code] for code in codes) * count * peers)
