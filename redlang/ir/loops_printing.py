"""Canonical text of the loop IR, one statement a line, as golden files and `explain` show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Compute,
    Contract,
    Fold,
    Kernel,
    Loop,
    Loops,
    Statement,
    Store,
)
from redlang.ir.printing import to_text, type_text
from redlang.ir.program import Expr
from redlang.ir.types import Type


def loops_text(loops: Loops) -> str:
    """Return all kernels of a lowered program."""
    lines = [f"loops {loops.name}"]
    lines += [f"  workspace {s.name}: {s.dtype}[{' '.join(s.axes)}]" for s in loops.workspaces]
    for kernel in loops.kernels:
        lines += _indent(_kernel(kernel))
    return "\n".join(lines) + "\n"


def _kernel(kernel: Kernel) -> list[str]:
    grid = ", ".join(f"{g.axis}:{g.tile}" for g in kernel.grid)
    lines = [f"kernel {kernel.name} ({kernel.kind})"]
    lines.append(f"  grid {grid or '1'}")
    if kernel.segment is not None:
        lines.append(f"  segments of {kernel.segment.axis}, numbered by {kernel.segment.index}")
    if kernel.resident:
        lines.append(f"  resident {', '.join(kernel.resident)}")
    lines += _indent(_body(kernel.body))
    if kernel.joint:
        lines += ["  or, for all segments at once", *_indent(_indent(_body(kernel.joint)))]
    return lines


def _body(body: Iterable[Statement]) -> list[str]:
    return [line for statement in body for line in _statement(statement)]


def _statement(statement: Statement) -> list[str]:
    match statement:
        case Compute(name, value, type_):
            return [f"{name}: {type_text(type_)} = {to_text(value)}"]
        case Fold(names, op, over, values, condition, types, k, monoid):
            slots = [str(k)] if k is not None else []
            label = op if monoid is None else monoid.name
            arguments = ", ".join([*map(to_text, values), *slots])
            text = f"{label}[{', '.join(over)}]({arguments})"
            return [f"fold {_typed(names, types)} = {text}{_where(condition)}"]
        case Contract(name, over, left, right, condition, type_, accumulate):
            sign = "+=" if accumulate else "="
            product = f"({to_text(left)}) @[{', '.join(over)}] ({to_text(right)})"
            return [f"contract {_typed((name,), (type_,))} {sign} {product}{_where(condition)}"]
        case Combine(names, op, left, right, types, k, monoid):
            label = op if monoid is None else monoid.name
            sides = [_tuple(left), _tuple(right), *([str(k)] if k is not None else [])]
            return [f"combine {_typed(names, types)} = {label}({', '.join(sides)})"]
        case Commit(pairs):
            return ["commit " + ", ".join(f"{state} = {value}" for state, value in pairs)]
        case Store(target, value, axes):
            return [f"store {target}[{' '.join(axes)}] = {to_text(value)}"]
        case Loop(axis, tile, body, some):
            skip = "" if some is None else f" if {to_text(some)}"
            return [f"for {axis} by {tile}{skip}", *_indent(_body(body))]
        case Branch(condition, then, otherwise):
            lines = [f"if {to_text(condition)}", *_indent(_body(then))]
            return [*lines, "else", *_indent(_body(otherwise))] if otherwise else lines
        case _:
            assert_never(statement)


def _typed(names: Sequence[str], types: Sequence[Type]) -> str:
    return ", ".join(f"{n}: {type_text(t)}" for n, t in zip(names, types, strict=True))


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _where(condition: Expr | None) -> str:
    return "" if condition is None else f" where {to_text(condition)}"


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
