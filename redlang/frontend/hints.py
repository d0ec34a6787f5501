"""Hints that depend on what is written around a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redlang.frontend import syntax
from redlang.frontend.builtins import nearest

RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min", "scan": "sum"}
"""Scans, and the reductions that give each of their elements."""


def running(name: str, axes: tuple[str, ...], along: str, array: str, taken: set[str]) -> str:
    """Return a hint that writes a scan of an array as a reduction for each element.

    Args:
        name: Of the scan.
        axes: Of the array.
        along: One of them.
        array: Its name.
        taken: Names that have a meaning already.
    """
    inner, part = free("lkjt", taken), free("yzuw", taken)
    place = ", ".join(inner if axis == along else axis for axis in axes)
    reduced = f"{RUNNING[name]}[{inner}](where({inner} <= {along}, {part}))"
    return (
        f"there are no scans; over a short axis, {part} = {array}[{place}] on a line of its own, "
        f"then {reduced}, is one"
    )


def free(letters: str, taken: set[str]) -> str:
    """Return the first of some names that has no meaning yet."""
    return next((c for c in (*letters, *(c * 2 for c in letters)) if c not in taken), letters)


def undeclared(function: syntax.Function, text: str) -> str:
    """Return a hint for a name that is an axis elsewhere in the text; nothing if it is not."""
    for node in _body(function):
        if _subscripts(node, text):
            assert isinstance(node, syntax.Subscript)
            return (
                f"{text} becomes an axis where {node.array.text} takes it as a subscript, "
                f"which is read later: give that element a name on a line before"
            )
    specs = (s for a in function.returns or () for dim in a.dims for s in dim.axes)
    if any(spec.name == text for spec in specs):
        return (
            f"{text} stands in the result's annotation, which the body does not see: name "
            f"it in a parameter's annotation, or in a subscript on a line before"
        )
    return ""


def misspelled(function: syntax.Function, axis: str, bindings: Iterable[str]) -> str:
    """Return a hint for an axis that may be a misspelled parameter or local; mostly nothing.

    It stands in subscripts only: an axis that is reduced or read as an index is meant.
    """
    nodes = list(_body(function))
    read = sum(isinstance(node, syntax.Name) and node.text == axis for node in nodes)
    named = (b for n in nodes if isinstance(n, syntax.Call) for b in n.axes)
    if read > sum(_subscripts(node, axis) for node in nodes) or any(
        axis in (binding.name, binding.target) for binding in named
    ):
        return ""
    match = nearest(axis, bindings)
    return f"did you mean {match}? {axis} as a subscript names a new axis" if match else ""


def _subscripts(node: syntax.Expr, text: str) -> int:
    """Return how many subscripts of `node` are the name `text`."""
    places = node.subscripts if isinstance(node, syntax.Subscript) else ()
    return sum(isinstance(place, syntax.Name) and place.text == text for place in places)


def _body(function: syntax.Function) -> Iterator[syntax.Expr]:
    """Return all expressions of a function, in the order of the text."""
    for statement in function.body:
        values = (statement.value,) if isinstance(statement, syntax.Assign) else statement.values
        for value in values:
            yield from _nodes(value)


def _nodes(node: syntax.Expr) -> Iterator[syntax.Expr]:
    """Return an expression and all inside it, in the order of the text."""
    yield node
    match node:
        case syntax.Unary(operand=operand):
            inside: tuple[syntax.Expr, ...] = (operand,)
        case syntax.Binary(left=left, right=right):
            inside = (left, right)
        case syntax.Compare(operands=operands):
            inside = operands
        case syntax.IfElse(condition=condition, then=then, otherwise=otherwise):
            inside = (then, condition, otherwise)
        case syntax.Call(arguments=arguments, keywords=keywords):
            inside = (*arguments, *(keyword.value for keyword in keywords))
        case syntax.Subscript(subscripts=subscripts):
            inside = subscripts
        case _:
            inside = ()
    for child in inside:
        yield from _nodes(child)
