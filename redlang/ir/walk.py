"""Walk and rewrite expressions and programs.

`rebuild` is the only place that knows how a node is put together; everything else here is written
on top of `children` and `rebuild`. A node whose children did not change is returned as it is, so
that passes share what they do not touch, and so that "unchanged" can be seen with `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from redlang.ir.program import (
    Apply,
    Cast,
    Definition,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Program,
    Reduce,
    Ref,
    Result,
    Scalar,
    Size,
)
from redlang.ir.types import Type

Rule = Callable[[Expr], Expr]
"""A rewrite of one node whose children are done; it returns the node itself to keep it."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that `expr` is made of, in the order written."""
    match expr:
        case Literal() | Index() | Size() | Scalar() | Ref():
            return ()
        case Load():
            return expr.subscripts
        case Apply():
            return expr.arguments
        case Cast():
            return (expr.operand,)
        case Mask():
            return (expr.condition, expr.operand)
        case Fill():
            return (expr.operand, expr.value)
        case _:
            assert_never(expr)


def rebuild(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """Return `expr` with `parts` for children and its own type; `expr` itself if nothing changed.

    The type is kept. `build.Builder.rebuild` infers it anew where a rewrite changes axes,
    absence or element types.
    """
    if all(new is old for new, old in zip(parts, children(expr), strict=True)):
        return expr
    match expr:
        case Literal() | Index() | Size() | Scalar() | Ref():
            return expr
        case Load():
            return replace(expr, subscripts=tuple(parts))
        case Apply():
            return replace(expr, arguments=tuple(parts))
        case Cast():
            return replace(expr, operand=parts[0])
        case Mask():
            return replace(expr, condition=parts[0], operand=parts[1])
        case Fill():
            return replace(expr, operand=parts[0], value=parts[1])
        case _:
            assert_never(expr)


def nodes(expr: Expr) -> Iterator[Expr]:
    """Yield every node of `expr` once, children before parents; a shared node comes once."""
    seen: set[int] = set()
    stack = [(expr, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))


def rewrite(
    expr: Expr, rule: Rule, *, rebuild: Callable[[Expr, Sequence[Expr]], Expr] = rebuild
) -> Expr:
    """Apply `rule` to every node, children first, each node of a shared sub-tree once.

    Args:
        expr: What to rewrite.
        rule: Called with each node after its children are rewritten.
        rebuild: How a node is put together again; `Builder.rebuild` infers its type anew.
    """
    done: dict[int, Expr] = {}
    for node in nodes(expr):
        done[id(node)] = rule(rebuild(node, [done[id(child)] for child in children(node)]))
    return done[id(expr)]


def rewrite_to_fixed_point(expr: Expr, rule: Rule, *, rounds: int = 100) -> Expr:
    """Apply `rewrite` until nothing changes; a rule that never settles stops after `rounds`."""
    for _ in range(rounds):
        rewritten = rewrite(expr, rule)
        if rewritten is expr or rewritten == expr:
            return expr
        expr = rewritten
    return expr


def substitute(
    expr: Expr,
    values: Mapping[str, Expr],
    *,
    rebuild: Callable[[Expr, Sequence[Expr]], Expr] = rebuild,
) -> Expr:
    """Return `expr` with the `Ref`s named in `values` replaced."""
    return rewrite(
        expr,
        lambda node: values.get(node.name, node) if isinstance(node, Ref) else node,
        rebuild=rebuild,
    )


def rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Return `expr` with the `Ref`s named in `names` renamed."""
    return rewrite(
        expr,
        lambda node: (
            replace(node, name=names[node.name])
            if isinstance(node, Ref) and node.name in names
            else node
        ),
    )


def refs(expr: Expr) -> frozenset[str]:
    """Return the names of the definitions, states and steps that `expr` reads."""
    return frozenset(node.name for node in nodes(expr) if isinstance(node, Ref))


def arrays(expr: Expr) -> frozenset[str]:
    """Return the array parameters that `expr` reads itself (not through a `Ref`)."""
    return frozenset(node.array for node in nodes(expr) if isinstance(node, Load))


def scalars(expr: Expr) -> frozenset[str]:
    """Return the scalar parameters and captured numbers that `expr` reads itself."""
    return frozenset(node.name for node in nodes(expr) if isinstance(node, Scalar))


def axes_used(expr: Expr) -> frozenset[str]:
    """Return every axis that `expr` varies with or whose size it reads."""
    own = frozenset(node.axis for node in nodes(expr) if isinstance(node, Index | Size))
    return own.union(*(node.type.axes for node in nodes(expr)))


def size_of(expr: Expr) -> int:
    """Return the number of distinct nodes, as a measure of work and of text."""
    return sum(1 for _ in nodes(expr))


def factors(expr: Expr) -> tuple[Expr, ...]:
    """Return the factors of a product, in order."""
    if isinstance(expr, Apply) and expr.op == "mul":
        return tuple(part for argument in expr.arguments for part in factors(argument))
    return (expr,)


def tree_size(expr: Expr, lookup: Callable[[str], Expr | None] = lambda name: None) -> int:
    """Return the number of nodes where whatever is shared is written out wherever it is read.

    Twenty lines that each read the one before twice are a million nodes: what works on trees, or
    makes them, asks first.

    Args:
        expr: What is measured.
        lookup: Gives the expressions of names that are written out, too.
    """
    sizes: dict[int, int] = {}
    stack = [expr]
    while stack:
        node = stack[-1]
        body = lookup(node.name) if isinstance(node, Ref) else None
        parts = children(node) if body is None else (body,)
        missing = [part for part in parts if id(part) not in sizes]
        if missing:
            stack += missing
            continue
        stack.pop()
        sizes[id(node)] = sum(sizes[id(part)] for part in parts) + (body is None)
    return sizes[id(expr)]


def expressions(value: Expr | Reduce) -> tuple[Expr, ...]:
    """Return the expressions of a definition's right-hand side."""
    if not isinstance(value, Reduce):
        return (value,)
    condition = () if value.condition is None else (value.condition,)
    return (*value.operands, *condition)


def value_refs(value: Expr | Reduce) -> frozenset[str]:
    """Return the definitions that a definition's right-hand side reads."""
    return frozenset[str]().union(*map(refs, expressions(value)))


def value_types(value: Expr | Reduce) -> tuple[Type, ...]:
    """Return the types of a definition's names."""
    return value.types if isinstance(value, Reduce) else (value.type,)


def definition_types(program: Program) -> dict[str, Type]:
    """Return the type of every defined name."""
    return {
        name: type_
        for definition in program.definitions
        for name, type_ in zip(definition.names, value_types(definition.value), strict=True)
    }


def map_value(value: Expr | Reduce, rule: Rule) -> Expr | Reduce:
    """Apply `rule` to the whole expressions of a right-hand side (not to their nodes)."""
    if not isinstance(value, Reduce):
        return rule(value)
    operands = tuple(map(rule, value.operands))
    condition = None if value.condition is None else rule(value.condition)
    kept = all(new is old for new, old in zip(operands, value.operands, strict=True))
    if kept and condition is value.condition:
        return value
    return replace(value, operands=operands, condition=condition)


def map_program(program: Program, rule: Rule) -> Program:
    """Apply `rule` to the whole expressions of definitions and results; share what is kept."""
    definitions = tuple(_map_definition(definition, rule) for definition in program.definitions)
    results = tuple(_map_result(result, rule) for result in program.results)
    kept = all(new is old for new, old in zip(definitions, program.definitions, strict=True))
    if kept and all(new is old for new, old in zip(results, program.results, strict=True)):
        return program
    return replace(program, definitions=definitions, results=results)


def _map_definition(definition: Definition, rule: Rule) -> Definition:
    value = map_value(definition.value, rule)
    return definition if value is definition.value else replace(definition, value=value)


def _map_result(result: Result, rule: Rule) -> Result:
    value = rule(result.value)
    return result if value is result.value else replace(result, value=value)
