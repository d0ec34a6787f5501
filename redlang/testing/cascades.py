"""Generated cascades: kernels of one to four stages that read each other, as text, with inputs.

A generated kernel returns every stage, so that a fault shows at the stage that has it. Expressions
are drawn so that comparisons are exact and exponentials stay in range: what remains is rounding,
and `tolerance` bounds that by how much the reference itself moves when the inputs move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Flavour = Literal["normal", "ties", "offset", "wide"]

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
    "i < 2",
)
SPECIALS = (np.nan, np.inf, -np.inf, 0.0, -0.0)
LENGTHS = (0, 1, 2, 3, 7, 16, 33, 130)


@dataclass(frozen=True, slots=True)
class Cascade:
    """A kernel's text and arguments for it."""

    text: str
    arguments: Mapping[str, Array | float] = field(repr=False)

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


@st.composite
def cascades(
    draw: st.DrawFn, *, stages: int = 4, dtypes: tuple[str, ...] = ("float64",)
) -> Cascade:
    """Draw a kernel of up to `stages` stages over one axis or two, and arrays for it."""
    builder = _Builder()
    for number in range(draw(st.integers(1, stages))):
        _stage(draw, builder, f"r{number}")
    if draw(st.integers(0, 3)) == 0:
        builder.lines.append(f"    o = fill({_term(draw, builder)}, 0)")
        builder.returned.append(("o", "i l"))
    results = ", ".join(f'"{axes}"' for _, axes in builder.returned)
    results = results if len(builder.returned) == 1 else f"({results})"
    g = ', g: "l d"' if builder.wide else ""
    text = (
        f'def cascade(x: "i l", y: "i l", w: "l"{g}, a: float) -> {results}:\n'
        + "\n".join(builder.lines)
        + f"\n    return {', '.join(name for name, _ in builder.returned)}\n"
    )
    return Cascade(text, draw(_arguments(builder.wide, dtypes)))


def _stage(draw: Draw, builder: _Builder, name: str) -> None:
    kind = draw(st.sampled_from(("sum", "sum", "mean", "max", "min", "weight", "rank", "logic")))
    match kind:
        case "weight":
            _weight(draw, builder, name)
        case "rank":
            _rank(draw, builder, name)
        case "logic":
            op = draw(st.sampled_from(("count", "any", "all")))
            condition = draw(st.sampled_from(CONDITIONS))
            builder.lines.append(f"    {name} = {op}[l]({condition})")
            builder.returned.append((name, "i"))
        case "max" | "min":
            exact = draw(st.sampled_from(EXACT))
            inner = exact if draw(st.booleans()) else _monotone(draw, builder, exact)
            masked, plain = _mask(draw, inner)
            builder.lines.append(f"    {name} = {kind}[l]({masked})")
            _publish(builder, name, mild=True)
            if kind == "max" and plain and inner == exact:
                builder.maxima.append((name, exact))
        case "sum" | "mean":
            term = _term(draw, builder)
            if kind == "sum" and draw(st.integers(0, 5)) == 0:
                builder.lines.append(f"    {name} = prod[l](1 + 0.1 * tanh({term}))")
            elif kind == "sum" and draw(st.integers(0, 5)) == 0:
                builder.wide = True
                builder.lines.append(f"    {name} = sum[l](({term}) * g)")
                builder.returned.append((name, "i d"))
                return
            else:
                builder.lines.append(f"    {name} = {kind}[l]({_mask(draw, term)[0]})")
            _publish(builder, name, mild=kind == "mean")


def _publish(builder: _Builder, name: str, *, mild: bool) -> None:
    builder.scalars.append(name)
    builder.returned.append((name, "i"))
    if mild:
        builder.mild.append(name)


def _weight(draw: Draw, builder: _Builder, name: str) -> None:
    """Add a sum of exponentials under a maximum, making the maximum first if there is none."""
    if not builder.maxima:
        exact = draw(st.sampled_from(EXACT))
        builder.lines.append(f"    m{name} = max[l]({exact})")
        builder.maxima.append((f"m{name}", exact))
        _publish(builder, f"m{name}", mild=True)
    top, exact = draw(st.sampled_from(builder.maxima))
    builder.lines.append(f"    {name} = sum[l](exp({exact} - {top}))")
    builder.weights.append((top, exact, name))
    _publish(builder, name, mild=True)


def _rank(draw: Draw, builder: _Builder, name: str) -> None:
    exact = draw(st.sampled_from(EXACT))
    masked, _ = _mask(draw, exact)
    op = draw(st.sampled_from(("argmax", "argmin", "topk")))
    if op == "topk":
        k = draw(st.integers(1, 4))
        builder.lines.append(f"    v{name}, {name} = topk[l:t{name}]({masked}, {k})")
        builder.lines.append(f"    b{name} = max[t{name}](v{name})")
        builder.returned += [(f"v{name}", f"i t{name}"), (name, f"i t{name}")]
        _publish(builder, f"b{name}", mild=True)
    else:
        builder.lines.append(f"    {name} = {op}[l]({masked})")
        builder.returned.append((name, "i"))


def _mask(draw: Draw, term: str) -> tuple[str, bool]:
    """Return the term, masked one time in three, and whether it was left plain."""
    if draw(st.integers(0, 2)):
        return term, True
    return f"where({draw(st.sampled_from(CONDITIONS))}, {term})", False


def _monotone(draw: Draw, builder: _Builder, exact: str) -> str:
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
    return str(draw(st.sampled_from(forms)))


def _term(draw: Draw, builder: _Builder) -> str:
    """Return an expression over elements and earlier results."""
    element = draw(st.sampled_from(ELEMENTS))
    other = draw(st.sampled_from(ELEMENTS))
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
    return str(draw(st.sampled_from(forms)))


@st.composite
def _arguments(draw: st.DrawFn, wide: bool, dtypes: tuple[str, ...]) -> dict[str, Array | float]:
    rows, length = draw(st.integers(1, 3)), draw(st.sampled_from(LENGTHS))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = {"x": (rows, length), "y": (rows, length), "w": (length,)}
    if wide:
        shapes["g"] = (length, draw(st.integers(1, 3)))
    arguments: dict[str, Array | float] = {}
    for name, shape in shapes.items():
        array = _values(draw, rng, shape).astype(dtype)
        if array.size and draw(st.integers(0, 5)) == 0:
            for _ in range(draw(st.integers(1, 3))):
                array.flat[rng.integers(array.size)] = draw(st.sampled_from(SPECIALS))
        arguments[name] = array
    arguments["a"] = draw(st.sampled_from((1.0, -0.5, 2.0, 0.0)))
    return arguments


def _values(draw: Draw, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    flavour: Flavour = draw(st.sampled_from(("normal", "ties", "offset", "wide")))
    match flavour:
        case "normal":
            return rng.normal(size=shape)
        case "ties":
            return rng.integers(-2, 3, size=shape).astype(np.float64)
        case "offset":
            return 100 + rng.normal(size=shape)
        case "wide":
            return rng.normal(size=shape) * 10.0 ** rng.integers(-2, 2, size=shape)


def tolerance(
    reference: Callable[..., Any],
    arguments: Mapping[str, Array | float],
    eps: float,
    *,
    factor: float = 256.0,
) -> tuple[Array, ...]:
    """Return how far each result may lie from the reference, element by element.

    Inputs are moved by 2**-20 of themselves, three times at random; what the results move by,
    divided by that, says how much a rounding of the inputs can be magnified on the way. `factor`
    covers the number of roundings and what three samples miss.
    """
    step = 2.0**-20
    rng = np.random.default_rng(0)
    right = _tuple(reference(**arguments))
    spread = [np.abs(np.nan_to_num(np.asarray(r, np.float64), posinf=0, neginf=0)) for r in right]
    for _ in range(3):
        moved = {
            name: value * (1 + step * rng.uniform(-1, 1, value.shape)).astype(value.dtype)
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
            else value
            for name, value in arguments.items()
        }
        for number, other in enumerate(_tuple(reference(**moved))):
            with np.errstate(invalid="ignore"):
                change = np.asarray(other, np.float64) - np.asarray(right[number], np.float64)
            change = np.where(np.isfinite(change), np.abs(change), 0.0)
            spread[number] = np.maximum(spread[number], change / step)
    return tuple(factor * eps * s for s in spread)


def _tuple(results: Any) -> tuple[Array, ...]:  # noqa: ANN401  # one array or several
    return results if isinstance(results, tuple) else (results,)
