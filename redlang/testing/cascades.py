"""Generated cascades: kernels of one to four stages that read each other, as text, with inputs.

A generated kernel returns every stage, so that a fault shows at the stage that has it. Expressions
are drawn so that comparisons are exact and exponentials stay in range: what remains is rounding,
and `rounding.tolerance` bounds that by how much the reference itself moves when the inputs move.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from redlang.testing.compare import differences
from redlang.testing.inputs import SPECIALS, spread

Array = NDArray[Any]
Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several: Hypothesis, which can shrink, or a seeded generator, which spreads."""

ELEMENTS = ("x", "y", "w", "x * w", "abs(x)", "x * x", "x - y", "where(x > 0, x, y)", "x * a", "-y")
EXACT = ("x", "y", "w", "abs(x)", "where(x > 0, x, y)", "-y", "minimum(x, w)")
CONDITIONS = (
    "l <= i",
    "l % 3 != 0",
    "l >= 2",
    "x > 0",
    "w < y",
    "(x > 0) & (l != 4)",
    "~isnan(x)",
    "i < 2",  # constant along l: the last one
)
LENGTHS = (0, 1, 2, 3, 7, 16, 33, 130)


@dataclass(frozen=True, slots=True)
class Cascade:
    """A kernel's text and arguments for it.

    Attributes:
        stages: How many of its results are stages; the others are maps of these.
    """

    text: str
    arguments: Mapping[str, Array | float] = field(repr=False)
    stages: int

    def __str__(self) -> str:
        shapes = {name: np.shape(value) for name, value in self.arguments.items()}
        return f"{self.text}\n{shapes}"


@dataclass(slots=True)
class _Builder:
    """What has been written so far, and which results a later stage may read how."""

    lines: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    mild: list[str] = field(default_factory=list)
    maxima: list[tuple[str, str]] = field(default_factory=list)
    weights: list[tuple[str, str, str]] = field(default_factory=list)
    returned: list[tuple[str, str]] = field(default_factory=list)
    wide: bool = False
    least: int = 0


@st.composite
def cascades(
    draw: st.DrawFn, *, stages: int = 4, dtypes: tuple[str, ...] = ("float64",)
) -> Cascade:
    """Draw a kernel of up to `stages` stages over one axis or two, and arrays for it."""
    return _cascade(lambda options: draw(st.sampled_from(options)), stages, dtypes)


def random_cascade(
    seed: int, *, stages: int = 4, dtypes: tuple[str, ...] = ("float64",)
) -> Cascade:
    """Return the cascade that belongs to a seed."""
    return _cascade(random.Random(seed).choice, stages, dtypes)


def _cascade(pick: Pick, stages: int, dtypes: tuple[str, ...]) -> Cascade:
    builder = _Builder()
    for number in range(pick(range(1, stages + 1))):
        _stage(pick, builder, f"r{number}")
    count = len(builder.returned)
    if pick(range(4)) == 0:
        builder.lines.append(f"    o = fill({_term(pick, builder)}, 0)")
        builder.returned.append(("o", "i l"))
    results = ", ".join(f'"{axes}"' for _, axes in builder.returned)
    results = results if len(builder.returned) == 1 else f"({results})"
    g = ', g: "l d"' if builder.wide else ""
    text = (
        f'def cascade(x: "i l", y: "i l", w: "l"{g}, a: float) -> {results}:\n'
        + "\n".join(builder.lines)
        + f"\n    return {', '.join(name for name, _ in builder.returned)}\n"
    )
    return Cascade(text, _arguments(pick, builder, dtypes), count)


def disagreement(
    cascade: Cascade,
    actual: tuple[Array, ...],
    right: tuple[Array, ...],
    allowed: tuple[Array, ...],
) -> str:
    """Return how the results of a generated cascade break the contract; empty if they do not.

    In a row whose stages are all finite, masks must agree and values lie within `allowed`. In any
    other row, what is not finite must not be finite; its kind, and what maps make of it, is free.
    """
    clean = np.ones(right[0].shape[0], bool)
    for result in right[: cascade.stages]:
        finite = np.isfinite(result.astype(np.float64))
        clean &= finite.reshape(len(clean), math.prod(result.shape[1:])).all(axis=1)
    for number, (one, other, atol) in enumerate(zip(actual, right, allowed, strict=True)):
        if wrong := differences(one[clean], other[clean], rtol=0, atol=atol[clean]):
            return f"result {number}: {wrong}"
        hidden = ~np.isfinite(other[~clean].astype(np.float64))
        shown = np.isfinite(one[~clean].astype(np.float64))
        if number < cascade.stages and (hidden & shown).any():
            return f"result {number}: finite where the reference is not: {one} for {other}"
    return ""


def _stage(pick: Pick, builder: _Builder, name: str) -> None:
    kind = pick(("sum", "sum", "mean", "max", "min", "weight", "rank", "logic"))
    match kind:
        case "weight":
            _weight(pick, builder, name)
        case "rank":
            _rank(pick, builder, name)
        case "logic":
            op = pick(("count", "any", "all"))
            condition = pick(CONDITIONS[:-1])
            builder.lines.append(f"    {name} = {op}[l]({condition})")
            builder.returned.append((name, "i"))
        case "max" | "min":
            exact = pick(EXACT)
            inner = exact if pick((True, False)) else _monotone(pick, builder, exact)
            masked, plain = _mask(pick, inner)
            builder.lines.append(f"    {name} = {kind}[l]({masked})")
            _publish(builder, name, mild=True)
            if kind == "max" and plain and inner == exact:
                builder.maxima.append((name, exact))
        case "sum" | "mean":
            term = _term(pick, builder)
            if kind == "sum" and pick(range(6)) == 0:
                builder.lines.append(f"    {name} = prod[l](1 + 0.1 * tanh({term}))")
            elif kind == "sum" and pick(range(6)) == 0:
                builder.wide = True
                if pick((True, False)):
                    builder.lines.append(f"    {name} = sum[l](({term}) * g)")
                    builder.returned.append((name, "i d"))
                    return
                builder.lines.append(f"    {name} = sum[l, d](({term}) * g)")
            else:
                builder.lines.append(f"    {name} = {kind}[l]({_mask(pick, term)[0]})")
            _publish(builder, name, mild=kind == "mean")


def _publish(builder: _Builder, name: str, *, mild: bool) -> None:
    builder.scalars.append(name)
    builder.returned.append((name, "i"))
    if mild:
        builder.mild.append(name)


def _weight(pick: Pick, builder: _Builder, name: str) -> None:
    """Add a sum of exponentials under a maximum, making the maximum first if there is none."""
    if not builder.maxima:
        exact = pick(EXACT)
        builder.lines.append(f"    m{name} = max[l]({exact})")
        builder.maxima.append((f"m{name}", exact))
        _publish(builder, f"m{name}", mild=True)
    top, exact = pick(builder.maxima)
    builder.lines.append(f"    {name} = sum[l](exp({exact} - {top}))")
    builder.weights.append((top, exact, name))
    _publish(builder, name, mild=True)


def _rank(pick: Pick, builder: _Builder, name: str) -> None:
    exact = pick(EXACT)
    masked, _ = _mask(pick, exact)
    op = pick(("argmax", "argmin", "topk"))
    if op == "topk":
        k = pick(range(1, 5))
        builder.least = max(builder.least, k)
        builder.lines.append(f"    v{name}, {name} = topk[l:t{name}]({masked}, {k})")
        builder.lines.append(f"    b{name} = max[t{name}](v{name})")
        builder.returned += [(f"v{name}", f"i t{name}"), (name, f"i t{name}")]
        _publish(builder, f"b{name}", mild=True)
    else:
        builder.lines.append(f"    {name} = {op}[l]({masked})")
        builder.returned.append((name, "i"))


def _mask(pick: Pick, term: str) -> tuple[str, bool]:
    """Return the term, masked one time in three, and whether it was left plain."""
    if pick(range(3)):
        return term, True
    return f"where({pick(CONDITIONS)}, {term})", False


def _monotone(pick: Pick, builder: _Builder, exact: str) -> str:
    """Return a map of an element that a maximum may or may not move past."""
    forms = [f"2 * {exact} + 1", f"exp(-abs({exact}))", f"{exact} * a"]
    for name in builder.scalars[-2:]:
        forms += [
            f"({exact}) - {name}",
            f"({exact}) * {name}",
            f"abs({exact}) * rsqrt({name} * {name} + 1)",
            f"abs(({exact}) - {name})",
            f"({exact}) / (abs({name}) + 1)",
        ]
    return str(pick(forms))


def _term(pick: Pick, builder: _Builder) -> str:
    """Return an expression over elements and earlier results."""
    element = pick(ELEMENTS)
    other = pick(ELEMENTS)
    forms = [element, f"({element}) * ({other})"]
    for name in builder.scalars[-3:]:
        forms += [
            f"({element}) - {name}",
            f"(({element}) - {name}) ** 2",
            f"(({element}) - {name}) * ({other})",
            f"({element}) * {name}",
            f"({element}) / (abs({name}) + 1)",
            f"({element}) * rsqrt({name} * {name} + 0.5)",
            f"abs(({element}) - {name})",
            f"tanh(({element}) - {name})",
            f"maximum(({element}) - {name}, 0)",
            f"exp(-abs(({element}) - {name}))",
        ]
    if len(builder.scalars) > 1:
        one, two = builder.scalars[-2:]
        forms.append(f"(({element}) - {one}) * (({other}) - {two})")
    forms += [f"exp((({element}) - {name}) * 0.001)" for name in builder.mild[-2:]]
    for top, exact, total in builder.weights[-2:]:
        forms += [
            f"exp({exact} - {top}) / {total} * ({element})",
            f"exp({exact} - {top}) * ({exact} - {top})",
        ]
        forms += [
            f"exp({exact} - {top}) / {total} * (({element}) - {n}) ** 2"
            for n in builder.scalars[-1:]
        ]
    return str(pick(forms))


def _arguments(pick: Pick, builder: _Builder, dtypes: tuple[str, ...]) -> dict[str, Array | float]:
    rows = pick(range(1, 4))
    length = pick([length for length in LENGTHS if length >= builder.least])
    dtype = np.dtype(pick(dtypes))
    rng = np.random.default_rng(pick(range(2**32)))
    shapes = {"x": (rows, length), "y": (rows, length), "w": (length,)}
    if builder.wide:
        shapes["g"] = (length, pick(range(1, 4)))
    arguments: dict[str, Array | float] = {}
    for name, shape in shapes.items():
        array = spread(rng, shape, pick(("normal", "ties", "offset", "wide"))).astype(dtype)
        if array.size and pick(range(6)) == 0:
            for _ in range(pick(range(1, 4))):
                array.flat[rng.integers(array.size)] = pick(SPECIALS)
        arguments[name] = array
    arguments["a"] = pick((1.0, -0.5, 2.0, 0.0))
    return arguments
