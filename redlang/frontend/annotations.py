"""The text of an array annotation, `f16[b (g r) m d]`, to nodes whose spans lie inside the quotes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlang.frontend.refusal import Read, Refusal, mistake
from redlang.frontend.syntax import ArrayAnnotation, AxisSpec, DimSpec
from redlang.ir.types import DTYPES
from redlang.source import Span

if TYPE_CHECKING:
    from lark import Token, Tree

    from redlang.errors import KernelSyntaxError

EXAMPLE = 'write axes in memory order, separated by spaces: "b (g r) m", "f16[b m d]", "n=128"'
SCALARS = ("float", "int", "bool")


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
        tree = read("annotation", text.replace("\n", " "))
    except Refusal as refusal:
        place = Span(refusal.span.start + span.start, refusal.span.stop + span.start)
        problem, hint = _explain(text, refusal)
        return ArrayAnnotation(None, (), span), [mistake(problem, hint, place)]
    children = list(tree.children)
    dtype = str(children.pop(0)) if tree.data == "typed_annotation" else None
    dims = tuple(_dimension(child, span.start) for child in children)  # type: ignore[arg-type]
    annotation = ArrayAnnotation(dtype, dims, span)
    return annotation, _check(annotation)


def _place(tree: Tree[Token], offset: int) -> Span:
    return Span(tree.meta.start_pos + offset, tree.meta.end_pos + offset)


def _dimension(tree: Tree[Token], offset: int) -> DimSpec:
    axes = tuple(_axis(axis, offset) for axis in tree.children)  # type: ignore[arg-type]
    return DimSpec(axes, _place(tree, offset))


def _axis(tree: Tree[Token], offset: int) -> AxisSpec:
    name: str | None = None
    extent: int | None = None
    for token in tree.children:
        assert not hasattr(token, "data")
        if token.type == "NAME":
            name = str(token)
        else:
            extent = int(token)
    return AxisSpec(name, extent, _place(tree, offset))


def _check(annotation: ArrayAnnotation) -> list[KernelSyntaxError]:
    first = annotation.dims[0].axes[0] if annotation.dims else None
    if first is None or first.name is None or annotation.dtype is not None:
        return []
    if first.name in SCALARS and len(annotation.dims) == 1:
        problem = f"{first.name!r} in quotes is an axis named {first.name}"
        return [mistake(problem, f"write {first.name} without quotes for a number", first.span)]
    if first.name in DTYPES:
        problem = f"{first.name!r} is an element type, not an axis"
        axes = " ".join("_" for _ in annotation.dims[1:]).replace("_", "n")
        return [mistake(problem, f'put the axes in brackets: "{first.name}[{axes}]"', first.span)]
    return []


def _explain(text: str, refusal: Refusal) -> tuple[str, str]:
    """Return problem and hint for an annotation that the grammar refuses."""
    found = text[refusal.span.start : refusal.span.stop]
    if not found:
        opened = "[" if text.count("[") > text.count("]") else "("
        return f"the annotation ends before {opened!r} is closed", EXAMPLE
    match found:
        case ",":
            return "axes are separated by spaces, not by commas", EXAMPLE
        case "..." | "." | "*":
            hint = "name every axis; a kernel over any number of leading axes can take them as one"
            return f"{found!r} stands for no axis", hint
        case ":":
            return "an annotation has no ranges", "an axis of fixed extent is written n=128"
        case "(":
            return "parentheses hold axes, not further parentheses", EXAMPLE
        case ")" if text[: refusal.span.start].rstrip().endswith("("):
            return "the parentheses hold no axis", EXAMPLE
        case _:
            return f"{found!r} has no place in an annotation", EXAMPLE
