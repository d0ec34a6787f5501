"""Array annotations, `f16[b (g r) m d]`: text to nodes, whose spans lie inside the quotes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redlang.frontend.builtins import RENAMED
from redlang.frontend.reading import Node, Read, Refusal, mistake
from redlang.frontend.syntax import ArrayAnnotation, AxisSpec, DimSpec
from redlang.frontend.words import name_of
from redlang.ir.types import DTYPES
from redlang.source import Span

if TYPE_CHECKING:
    from lark import Token

    from redlang.errors import KernelSyntaxError

MAX_EXTENT = 2**63 - 1
EXAMPLE = 'write axes in memory order, separated by spaces: "b (g r) m", "f16[b m d]", "n=128"'
SCALARS = ("float", "int", "bool")
ELSEWHERE = {"float": "f32", "int": "i64", "double": "f64", "half": "f16", "long": "i64"}
"""Element types of arrays by what other languages and libraries call them."""


def parse_annotation(
    text: str, span: Span, read: Read
) -> tuple[ArrayAnnotation, list[KernelSyntaxError]]:
    """Return the annotation and its mistakes.

    Args:
        text: What stands between the quotes.
        span: Where that stands in the source.
        read: The grammar.
    """
    try:
        node = read("annotation", text.replace("\n", " "))
    except Refusal as refusal:
        start, stop = refusal.span.start, refusal.span.stop
        if text.startswith("...", start):
            stop = start + 3
        place = Span(start + span.start, stop + span.start)
        problem, hint = _explain(text[:start], text[start:stop])
        meant = _meant(text, read)
        hint = f'write "{meant}"' if meant else hint
        return ArrayAnnotation(None, (), span), [mistake(problem, hint, place)]
    dtype = str(node.words[0]) if node.words else None
    dims = tuple(_dimension(child, span.start) for child in node.nodes)
    annotation = ArrayAnnotation(dtype, dims, span)
    return annotation, _check(annotation, text, read)


def _meant(text: str, read: Read) -> str:
    """Return an annotation with an element type and axes of `text`; nothing if it has no sense.

    It has them in another order or between other signs: `"[m n] f16"`, `"m, n"`, `"m n: f16"`.
    """
    found = [word for word in re.findall(r"\w+", text) if storage_name(word) in DTYPES]
    dtype = storage_name(found[0]) if found else ""
    rest = re.sub(rf":?\s*\b{found[0]}\b\s*:?", " ", text, count=1) if found else text
    whole = re.fullmatch(r"\s*\((.*)\)\s*", rest, re.DOTALL) if found else None
    rest = whole[1] if whole and not re.search(r"[()]", whole[1]) else rest
    rest = " ".join(re.sub(r"[\[\]{}<>,]", " ", rest).split())
    try:
        node = read("annotation", f"{dtype}[{rest}]" if dtype else rest)
    except Refusal:
        return ""
    return (f"{dtype}[{rest}]" if dtype else rest) if node.nodes else ""


def element_hint(annotation: ArrayAnnotation) -> str:
    """Return what to write for an element type that redlang does not have; maybe nothing."""
    name = annotation.dtype or ""
    return f'write "{ELSEWHERE[name]}[{axes_text(annotation)}]"' if name in ELSEWHERE else ""


def axes_text(annotation: ArrayAnnotation) -> str:
    """Return the axes of an annotation as they are written."""
    dims = []
    for dim in annotation.dims:
        parts = [
            str(axis.extent)
            if axis.name is None
            else axis.name
            if axis.extent is None
            else f"{axis.name}={axis.extent}"
            for axis in dim.axes
        ]
        dims.append(parts[0] if len(parts) == 1 else f"({' '.join(parts)})")
    return " ".join(dims)


def _place(token: Token, offset: int) -> Span:
    start = (token.start_pos or 0) + offset
    return Span(start, start + len(token))


def _dimension(node: Node, offset: int) -> DimSpec:
    axes = tuple(_axis(child, offset) for child in node.nodes)
    places = [_place(word, offset) for word in node.words]
    first, last = places or (axes[0].span, axes[0].span)
    return DimSpec(axes, first.to(last))


def _axis(node: Node, offset: int) -> AxisSpec:
    name: str | None = None
    extent: int | None = None
    for word in node.words:
        if word.type == "NAME":
            name = name_of(word)
        elif word.isdecimal():
            # Longer numbers only need to be seen as too large.
            extent = int(word[:30])
        else:
            extent = -1
    span = _place(node.words[0], offset).to(_place(node.words[-1], offset))
    return AxisSpec(name, extent, span)


def _check(annotation: ArrayAnnotation, text: str, read: Read) -> list[KernelSyntaxError]:
    """Return the mistakes of an annotation that the grammar reads."""
    axes = [axis for dim in annotation.dims for axis in dim.axes]
    mistakes = [
        mistake("the extent is no integer of at most 64 bits", "write n=128", axis.span)
        for axis in axes
        if axis.extent is not None and not 0 <= axis.extent <= MAX_EXTENT
    ]
    name = axes[0].name if axes else None
    if annotation.dtype is None and name in SCALARS and len(axes) == 1:
        problem = f"{name!r} in quotes is an axis named {name}"
        mistakes.append(mistake(problem, f"for a number write {name} without quotes", axes[0].span))
    elif annotation.dtype is None:
        # What is called half or long may well be an axis.
        types = (*SCALARS, *DTYPES)
        mistakes += [
            _misplaced(axis, text, read)
            for axis in axes
            if axis.name is not None and RENAMED.get(axis.name, axis.name) in types
        ]
    return mistakes


def storage_name(name: str) -> str:
    """Return redlang's name of an element type, `f32` for `float32`; other names as they are."""
    return ELSEWHERE.get(name) or RENAMED.get(name, name)


def _misplaced(axis: AxisSpec, text: str, read: Read) -> KernelSyntaxError:
    """Return the mistake of an element type among axes: `"m n float32"`."""
    meant = _meant(text, read) or f"{storage_name(axis.name or '')}[m n]"
    hint = f'it stands before brackets, which hold the axes: "{meant}"'
    return mistake(f"{axis.name!r} is an element type, not an axis", hint, axis.span)


def _explain(before: str, found: str) -> tuple[str, str]:
    """Return problem and hint for what the grammar refuses behind `before`."""
    if not found:
        opened = "[" if before.count("[") > before.count("]") else "("
        return f"the annotation ends before {opened!r} is closed", EXAMPLE
    match found:
        case ",":
            return "axes are separated by spaces, not by commas", EXAMPLE
        case "..." | "." | "*":
            return f"{found!r} stands for no axis", "name every axis of the array"
        case ":":
            return "an annotation has no ranges", "an axis of fixed extent is written n=128"
        case "(":
            return "parentheses hold axes, not further parentheses", EXAMPLE
        case ")" if before.rstrip().endswith("("):
            return "the parentheses hold no axis", EXAMPLE
        case _ if (axis := re.search(r"(\w+)\s*=\s*\Z", before)) and found.isidentifier():
            return (
                f"the extent of axis {axis[1]} is a number in an annotation, and not {found}",
                f"write a number, {axis[1]}=8, or {axis[1]} alone: arrays say how long it is, even "
                f'one that is there for that only, sizes: "{axis[1]}"',
            )
        case _:
            return f"{found!r} has no place in an annotation", EXAMPLE
