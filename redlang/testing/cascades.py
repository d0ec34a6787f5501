"""Generated cascades: kernels of one to four stages that read each other, as text, with inputs.

A generated kernel returns every stage, so that a fault shows at the stage that has it. Expressions
are drawn so that comparisons are exact and exponentials stay in range: what remains is rounding,
and `rounding.tolerance` bounds that by how much the reference itself moves when the inputs move.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from redlang.testing.compare import differences
from redlang.testing.inputs import SPECIALS, STORAGE, spread
from redlang.testing.plans import Pick
from redlang.testing.rounding import precision, rounding

Array = NDArray[Any]
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
    "c",
    "not c or w > 0",
    "-2 < l - i <= 5",
    "i < 2",  # constant along l: the last one
)
GATHERS = ("w[q[i, l]]", "x[i, u[l]]")
NEIGHBOURS = ("x[i, l + 1]", "y[i, l - 2]", "y[i + 2, l]", "x[i - 1, l + 3]")
CASTS = ("f16(x)", "bf16(y)", "i8(w)", "f8e4m3(x)")
LENGTHS = (0, 1, 2, 3, 7, 16, 33, 130)
ELEMENT_TYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "u8", "i16", "i32", "i64")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of what size cascades are, and what they may hold beside the plainest things.

    Attributes:
        lengths: Extents of the axis of the stages.
        rows: Extents of the axis that the results keep.
        columns: Extents of a matrix's further axis.
        elements: The most elements of an array.
        more: Whether arrays are gathered, read near elements, cast, and kept column by column.
    """

    lengths: tuple[int, ...] = LENGTHS
    rows: tuple[int, ...] = (1, 2, 3)
    columns: tuple[int, ...] = (1, 2, 3)
    elements: int = 1 << 17
    more: bool = False


SMALL = Sizes()
LARGE = Sizes(
    lengths=(0, 1, 2, 3, 7, 16, 33, 64, 130, 256, 1000, 1003, 2048, 4097, 9001, 40_003),
    rows=(1, 2, 3, 5, 17, 64, 130),
    columns=(1, 2, 3, 5, 8, 16, 33, 64),
    more=True,
)
"""What makes a GPU's kernels take every shape."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """A kernel's text and arguments for it.

    Attributes:
        stages: How many of its results are stages; the others are maps of these.
    """

    text: str
    arguments: Mapping[str, Array | float] = field(repr=False)
    stages: int

    @property
    def precision(self) -> float:
        """The rounding of the least precise type that it computes in; what is cast is f32."""
        return 2.0**-23 if any(cast in self.text for cast in CASTS) else precision(self.arguments)

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
    columns: list[str] = field(default_factory=list)
    returned: list[tuple[str, str]] = field(default_factory=list)
    wide: bool = False
    least: int = 0
    elements: tuple[str, ...] = ELEMENTS
    exact: tuple[str, ...] = EXACT


@st.composite
def cascades(draw: st.DrawFn, *, stages: int = 4, dtypes: tuple[str, ...] = ("f64",)) -> Cascade:
    """Draw a kernel of up to `stages` stages over one axis or two, and arrays for it.

    The arrays are all of the first of `dtypes`, or each of any of them.
    """
    return _cascade(lambda options: draw(st.sampled_from(options)), stages, dtypes)


def random_cascade(
    seed: int, *, stages: int = 4, dtypes: tuple[str, ...] = ("f64",), sizes: Sizes = SMALL
) -> Cascade:
    """Return the cascade that belongs to a seed, among those of some element types and sizes."""
    return _cascade(random.Random(seed).choice, stages, dtypes, sizes)


def _cascade(pick: Pick, stages: int, dtypes: tuple[str, ...], sizes: Sizes = SMALL) -> Cascade:
    builder = _Builder()
    if sizes.more:
        added = pick(((), (), GATHERS, NEIGHBOURS, CASTS))
        builder.elements += added
        builder.exact += added
    for number in range(pick(range(1, stages + 1))):
        _stage(pick, builder, f"r{number}")
    count = len(builder.returned)
    if pick(range(4)) == 0:
        term = _term(pick, builder)
        # Only what is read at computed places may be absent.
        gathered = any(name in term for name in (*GATHERS, *NEIGHBOURS))
        builder.lines.append(f"    o = fill({term}, 0)" if gathered else f"    o = {term}")
        builder.returned.append(("o", "i l"))
    results = ", ".join(f'"{axes}"' for _, axes in builder.returned)
    results = results if len(builder.returned) == 1 else f"({results})"
    axes = {"x": "i l", "y": "i l", "w": "l", "c": "i l"} | ({"g": "l d"} if builder.wide else {})
    arguments = _arguments(pick, builder, dtypes, sizes)
    if sizes.more:
        axes |= {"q": "i l", "u": "l"} if GATHERS[0] in builder.elements else {}
        for name in [name for name, own in axes.items() if " " in own and pick(range(3)) == 0]:
            axes[name] = " ".join(reversed(axes[name].split()))
            arguments[name] = np.ascontiguousarray(np.asarray(arguments[name]).T)
    types = {"c": "bool", "q": "i32", "u": "i64"}
    given = [
        f'{name}: "{types[name]}[{own}]"' if name in types else f'{name}: "{own}"'
        for name, own in axes.items()
    ]
    text = (
        f"def cascade({', '.join(given)}, a: float) -> {results}:\n"
        + "\n".join(builder.lines)
        + f"\n    return {', '.join(name for name, _ in builder.returned)}\n"
    )
    return Cascade(text, arguments, count)


def disagreement(
    cascade: Cascade,
    actual: tuple[Array, ...],
    right: tuple[Array, ...],
    allowed: tuple[Array, ...],
    declared: tuple[Array, ...] | None = None,
) -> str:
    """Return how the results of a generated cascade break the contract; empty if they do not.

    In a row whose stages are all finite, masks must agree and values lie within `allowed`. In any
    other row, what is not finite must not be finite; its kind, and what maps make of it, is free.

    Args:
        cascade: What was computed.
        actual: Its results in some form.
        right: What they are, in double precision.
        allowed: How far off each may be, before it is rounded to its element type.
        declared: What they are in declared types, for forms that compute in those.
    """
    stages = range(cascade.stages)
    clean = np.ones(right[0].shape[0], bool)
    for number in stages:
        fine: Array = _fits(right[number], actual[number].dtype)
        if declared is not None:
            fine = fine & np.isfinite(declared[number].astype(np.float64))
        clean &= _rows(fine)
    for number, (one, other, atol) in enumerate(zip(actual, right, allowed, strict=True)):
        # A map of finite stages may leave the range of its element type all the same.
        fits = clean if number in stages else clean & _rows(_fits(other, one.dtype))
        step = rounding(one.dtype)
        # What lies within 2**24 of underflow in f32 may vanish.
        least = _smallest(one.dtype) if declared is None else max(_smallest(one.dtype), 2.0**-102)
        wrong = differences(one[fits], other[fits], rtol=4 * step, atol=atol[fits] + least)
        if wrong:
            return f"result {number}: {wrong}"
        hidden = ~np.isfinite(other[~clean].astype(np.float64))
        if declared is not None:
            hidden = hidden & ~np.isfinite(declared[number][~clean].astype(np.float64))
        shown = np.abs(one[~clean].astype(np.float64)) < _infinity(one.dtype)
        if number in stages and (hidden & shown).any():
            return f"result {number}: finite where the reference is not: {one} for {other}"
    return ""


def _rows(mask: Array) -> Array:
    """Return where a whole row holds."""
    return np.asarray(mask.reshape(len(mask), math.prod(mask.shape[1:])).all(axis=1))


def _fits(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return where values are finite and far from the largest of an element type."""
    if dtype.kind in "biu":
        return np.ones(values.shape, bool)
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # it has no types
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values.astype(np.float64)) < largest / 2)


def _infinity(dtype: np.dtype[Any]) -> float:
    """Return what infinities become in an element type: f8 saturates."""
    if dtype.itemsize > 1 or dtype.kind in "biu":
        return math.inf
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # it has no types


def _smallest(dtype: np.dtype[Any]) -> float:
    """Return the distance of the numbers around 0."""
    if dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


def _stage(pick: Pick, builder: _Builder, name: str) -> None:
    kind = pick(("sum", "sum", "mean", "max", "min", "weight", "rank", "logic", "column"))
    match kind:
        case "weight":
            _weight(pick, builder, name)
        case "rank":
            _rank(pick, builder, name)
        case "column":
            op = pick(("sum", "mean", "max", "min"))
            inner = pick([e for e in builder.exact if e not in ("w", "i8(w)")])
            builder.lines.append(f"    {name} = {op}[i]({inner})")
            builder.returned.append((name, "i l"))
            builder.columns.append(name)
        case "logic":
            op = pick(("count", "any", "all"))
            condition = pick(CONDITIONS[:-1])
            builder.lines.append(f"    {name} = {op}[l]({condition})")
            builder.returned.append((name, "i"))
        case "max" | "min":
            exact = pick(builder.exact)
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
                    _matrix(pick, builder, name, term)
                    return
                axes = pick(("l, d", "d, l"))
                builder.lines.append(f"    {name} = sum[{axes}](({term}) * g)")
            else:
                builder.lines.append(f"    {name} = {kind}[l]({_mask(pick, term)[0]})")
            _publish(builder, name, mild=kind == "mean")


def _matrix(pick: Pick, builder: _Builder, name: str, term: str) -> None:
    """Add a product of matrices, or extremes of one axis for each of another, and one for all."""
    op = pick(("sum", "sum", "max", "min"))
    inner = f"({term}) * g" if op == "sum" else f"({pick(builder.exact)}) - g"
    builder.lines.append(f"    {name} = {op}[l]({_mask(pick, inner)[0]})")
    builder.lines.append(f"    b{name} = max[d]({name})")
    builder.returned.append((name, "i d"))
    _publish(builder, f"b{name}", mild=False)


def _publish(builder: _Builder, name: str, *, mild: bool) -> None:
    builder.scalars.append(name)
    builder.returned.append((name, "i"))
    if mild:
        builder.mild.append(name)


def _weight(pick: Pick, builder: _Builder, name: str) -> None:
    """Add a sum of exponentials under a maximum, making the maximum first if there is none."""
    if not builder.maxima:
        exact = pick(builder.exact)
        builder.lines.append(f"    m{name} = max[l]({exact})")
        builder.maxima.append((f"m{name}", exact))
        _publish(builder, f"m{name}", mild=True)
    top, exact = pick(builder.maxima)
    builder.lines.append(f"    {name} = sum[l](exp({exact} - {top}))")
    builder.weights.append((top, exact, name))
    _publish(builder, name, mild=True)


def _rank(pick: Pick, builder: _Builder, name: str) -> None:
    exact = pick(builder.exact)
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
    element = pick((*builder.elements, *builder.columns))
    other = pick((*builder.elements, *builder.columns))
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
            f"where({pick(CONDITIONS)}, exp({exact} - {top}), 0) * ({element})",
            f"where({pick(CONDITIONS)}, exp({exact} - {top}) / {total}, 0) / ({element})",
        ]
        forms += [
            f"exp({exact} - {top}) / {total} * (({element}) - {n}) ** 2"
            for n in builder.scalars[-1:]
        ]
    return str(pick(forms))


def _arguments(
    pick: Pick, builder: _Builder, dtypes: tuple[str, ...], sizes: Sizes
) -> dict[str, Array | float]:
    length = pick([length for length in sizes.lengths if length >= builder.least])
    rows = pick([rows for rows in sizes.rows if rows == 1 or rows * length <= sizes.elements])
    rng = np.random.default_rng(pick(range(2**32)))
    shapes = {"x": (rows, length), "y": (rows, length), "w": (length,)}
    if builder.wide:
        shapes["g"] = (length, pick(sizes.columns))
    mixed = pick((False, True))
    arguments: dict[str, Array | float] = {}
    for name, shape in shapes.items():
        dtype = pick(dtypes) if mixed else dtypes[0]
        arguments[name] = _array(pick, rng, shape, dtype)
    arguments["c"] = rng.random((rows, length)) < pick((0.0, 0.2, 0.8, 1.0))
    arguments["a"] = pick((1.0, -0.5, 2.0, 0.0))
    if GATHERS[0] in builder.elements:
        # A few places lie outside: what is read there is absent.
        arguments["q"] = rng.integers(-1, length + 1, (rows, length)).astype(np.int32)
        arguments["u"] = rng.integers(-2, length + 2, length).astype(np.int64)
    return arguments


def _array(pick: Pick, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    values = spread(rng, shape, pick(("normal", "ties", "offset", "wide")))
    if dtype[0] in "iu":
        return np.clip(np.rint(values), 0 if dtype[0] == "u" else -100, 100).astype(STORAGE[dtype])
    if dtype in ("f32", "f64"):
        values = values * pick((1.0, 1.0, 1.0, 1e4, 1e-6))
    if values.size and pick(range(6)) == 0:
        for _ in range(pick(range(1, 4))):
            values.flat[rng.integers(values.size)] = pick(SPECIALS)
    array: Array = values.astype(STORAGE[dtype])
    return array
