"""What kernels hand on through memory: a function of it that all readers ask for is stored instead.

    store sum[d](k * k); later rsqrt(sum[d](k * k)) at every use   -->   store rsqrt(sum[d](k * k))

A later kernel reads an element many times over, a unit each time; the one that writes it has it
once. The function keeps the stored type, so that nothing is rounded that was not before. What else
it reads is known everywhere, such as the 1e-6 of `rsqrt(x + 1e-6)`, which is two functions. What
elements are divided by beside products, where there is no time for it, is stored inverted: there a
quotient is off by one rounding more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redlang.ir import walk
from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Contract,
    Kernel,
    Loop,
    Loops,
    Statement,
    Store,
)
from redlang.ir.program import Apply, Cast, Expr, Literal, Ref, Size
from redlang.ir.types import Type
from redlang.schedule import tidy

CHEAP = frozenset({"neg", "abs", "not"})
"""Functions of one value that cost no more than reading it."""


def hand_on(loops: Loops) -> Loops:
    """Return loops whose kernels store what later ones make of it."""
    for space in loops.workspaces:
        stores = [_stores(kernel, space.name) for kernel in loops.kernels]
        while True:
            every = zip(loops.kernels, stores, strict=True)
            asked = _asked_for([kernel for kernel, own in every if not own], space.name)
            if asked is None:
                break
            kernels = [
                _storing(kernel, space.name, asked)
                if own
                else _mapped(kernel, _without(space.name, asked))
                for kernel, own in zip(loops.kernels, stores, strict=True)
            ]
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


def _asked_for(readers: list[Kernel], name: str) -> Apply | None:
    """Return the function of a workspace's elements that is all that kernels read of it."""
    asked: set[Apply | None] = set()
    for kernel in readers:
        for statement in _statements((*kernel.body, *kernel.joint)):
            if isinstance(statement, Combine | Commit) and name in tidy.reads(statement):
                return None
            if name in tidy.writes(statement):
                return None
            for expr in tidy.expressions(statement):
                asked |= _functions(expr, name, inverted=_multiplies(kernel))
    return asked.pop() if len(asked) == 1 else None


def _multiplies(kernel: Kernel) -> bool:
    return any(isinstance(statement, Contract) for statement in _statements(kernel.body))


def _functions(expr: Expr, name: str, *, inverted: bool) -> set[Apply | None]:
    """Return the functions applied to a name; None stands for any other use of it.

    Args:
        expr: What is read.
        name: The name.
        inverted: Whether a divisor asks for its reciprocal.
    """
    found: set[Apply | None] = {None} if _is(expr, name) else set()
    for node in walk.nodes(expr):
        read = [child for child in walk.children(node) if _is(child, name)]
        if read:
            others = [child for child in walk.children(node) if not _is(child, name)]
            alone = len(read) == 1 and all(map(_is_constant, others))
            same = alone and node.type.dtype == read[0].type.dtype
            taken = same and isinstance(node, Apply) and node.op not in CHEAP
            if inverted and len(read) == 1 and _is_divisor(node, name):
                found.add(_reciprocal(read[0]))
            else:
                found.add(node if isinstance(node, Apply) and taken else None)
    return found


def _is_divisor(node: Expr, name: str) -> bool:
    """Tell whether what is no constant is divided by a name."""
    if not isinstance(node, Apply) or node.op != "div" or node.type.dtype.kind != "float":
        return False
    dividend, divisor = node.arguments
    same = node.type.dtype == divisor.type.dtype
    return same and _is(divisor, name) and not _is_constant(dividend)


def _reciprocal(expr: Expr) -> Apply:
    return Apply("div", (Literal(1.0, Type(expr.type.dtype, weak=True)), expr), expr.type)


def _is_constant(expr: Expr) -> bool:
    return all(isinstance(node, Literal | Size | Cast | Apply) for node in walk.nodes(expr))


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, Ref) and expr.name == name


def _without(name: str, asked: Apply) -> Callable[[Expr], Expr]:
    """Return a rule that reads a workspace in place of a function of it."""
    # Under its own name it would be taken for the argument again, as in sqrt(sqrt(x)).
    handed = Ref(f"{name}.handed", asked.type)

    def rule(node: Expr) -> Expr:
        if node == asked:
            return handed
        if isinstance(node, Apply) and _is_divisor(node, name):
            dividend, divisor = node.arguments
            if asked == _reciprocal(divisor):
                return Apply("mul", (dividend, handed), node.type)
        return node

    return lambda expr: walk.rename(walk.rewrite(expr, rule), {handed.name: name})


def _mapped(kernel: Kernel, rule: Callable[[Expr], Expr]) -> Kernel:
    def each(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(tidy.map_expressions(statement, rule) for statement in body)

    return replace(kernel, body=each(kernel.body), joint=each(kernel.joint))


def _storing(kernel: Kernel, name: str, asked: Apply) -> Kernel:
    """Return the kernel that writes a workspace with a function of what it wrote."""

    def each(statement: Statement) -> Statement:
        match statement:
            case Store(target=target, value=value) if target == name:
                return replace(statement, value=walk.substitute(asked, {name: value}))
            case Loop(body=body):
                return replace(statement, body=tuple(map(each, body)))
            case Branch(then=then, otherwise=otherwise):
                return replace(
                    statement, then=tuple(map(each, then)), otherwise=tuple(map(each, otherwise))
                )
            case _:
                return statement

    return replace(kernel, body=tuple(map(each, kernel.body)))
