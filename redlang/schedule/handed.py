"""What kernels hand on through memory: a function of it that all readers ask for is stored instead.

    store sum[d](k * k); later rsqrt(sum[d](k * k)) at every use   -->   store rsqrt(sum[d](k * k))

A later kernel reads an element many times over, a unit each time; the one that writes it has it
once. The function keeps the stored type, so that nothing is rounded that was not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.loops import Branch, Combine, Commit, Kernel, Loop, Loops, Statement, Store
from redlang.ir.program import Apply, Expr, Ref
from redlang.schedule import tidy

CHEAP = frozenset({"neg", "abs", "not"})
"""Functions of one value that cost no more than reading it."""


def hand_on(loops: Loops) -> Loops:
    """Return loops whose kernels store what later ones make of it."""
    for space in loops.workspaces:
        readers = [k for k in loops.kernels if not _stores(k, space.name)]
        op = _asked_for(readers, space.name)
        if op is not None:
            kernels = (
                _mapped(kernel, _without(space.name, op))
                if kernel in readers
                else _storing(kernel, space.name, op)
                for kernel in loops.kernels
            )
            loops = replace(loops, kernels=tuple(kernels))
    return loops


def _statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        match statement:
            case Loop(body=inner):
                yield from _statements(inner)
            case Branch(then=then, otherwise=otherwise):
                yield from _statements((*then, *otherwise))
            case _:
                pass


def _stores(kernel: Kernel, name: str) -> bool:
    return any(isinstance(s, Store) and s.target == name for s in _statements(kernel.body))


def _asked_for(readers: list[Kernel], name: str) -> str | None:
    """Return the function of a workspace's elements that is all that kernels read of it."""
    ops: set[str | None] = set()
    for kernel in readers:
        for statement in _statements((*kernel.body, *kernel.joint)):
            if isinstance(statement, Combine | Commit) and name in tidy.reads(statement):
                return None
            if name in tidy.writes(statement):
                return None
            for expr in tidy.expressions(statement):
                ops |= _functions(expr, name)
    if len(ops) != 1:
        return None
    (op,) = ops
    return op


def _functions(expr: Expr, name: str) -> set[str | None]:
    """Return the functions applied to a name; None stands for any other use of it."""
    found: set[str | None] = {None} if _is(expr, name) else set()
    for node in walk.nodes(expr):
        if any(_is(child, name) for child in walk.children(node)):
            alone = isinstance(node, Apply) and len(node.arguments) == 1 and node.op not in CHEAP
            same = alone and node.type.dtype == walk.children(node)[0].type.dtype
            found.add(node.op if isinstance(node, Apply) and same else None)
    return found


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, Ref) and expr.name == name


def _without(name: str, op: str) -> Callable[[Expr], Expr]:
    """Return a rule that reads a workspace in place of a function of it."""

    def rule(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.op == op and _is(node.arguments[0], name):
            return node.arguments[0]
        return node

    return lambda expr: walk.rewrite(expr, rule)


def _mapped(kernel: Kernel, rule: Callable[[Expr], Expr]) -> Kernel:
    def each(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(tidy.map_expressions(statement, rule) for statement in body)

    return replace(kernel, body=each(kernel.body), joint=each(kernel.joint))


def _storing(kernel: Kernel, name: str, op: str) -> Kernel:
    """Return the kernel that writes a workspace with a function of what it wrote."""

    def each(statement: Statement) -> Statement:
        match statement:
            case Store(target=target, value=value) if target == name:
                return replace(statement, value=Apply(op, (value,), value.type))
            case Loop(body=body):
                return replace(statement, body=tuple(map(each, body)))
            case Branch(then=then, otherwise=otherwise):
                return replace(
                    statement, then=tuple(map(each, then)), otherwise=tuple(map(each, otherwise))
                )
            case _:
                return statement

    return replace(kernel, body=tuple(map(each, kernel.body)))
