"""Canonical text of expressions, programs and sweeps: what golden files hold and `explain` shows.

Expressions read as in the language, with Python's precedence and no parenthesis more than it needs.
Three things are added that a user does not write: a subscript that may fall outside its axis ends
in `?`, an implicit conversion is called by its kind (`float(n)`; a cast that the user wrote has its
type's name, `f32(n)`), and every definition states its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import assert_never

from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, State, Step, Sweep
from redlang.ir.operators import OPERATORS
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Axis,
    Cast,
    Definition,
    Dim,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Monoid,
    Param,
    Program,
    Reduce,
    Ref,
    Result,
    Scalar,
    ScalarParam,
    Size,
)
from redlang.ir.types import Type

_COMPARE = 6
_LEVELS = {
    "or": 7,
    "xor": 8,
    "and": 9,
    "add": 11,
    "sub": 11,
    "mul": 12,
    "div": 12,
    "floordiv": 12,
    "mod": 12,
    "neg": 13,
    "not": 13,
    "pow": 14,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _COMPARE),
}
"""How tightly an operator binds, as in Python's grammar."""

_ATOM = 15
_KINDS = {"bool": "bool", "int": "int", "uint": "uint", "float": "float"}

Printable = Expr | Reduce | Definition | Program | Sweep | Step


def to_text(node: Printable) -> str:
    """Return the canonical text of an expression, a definition, a program or a sweep.

    >>> from redlang.ir.build import Builder, literal
    >>> b = Builder(("m", "n"))
    >>> to_text(b.mul(b.sub(b.index("n"), b.index("m")), 2))
    '(n - m) * 2'
    """
    match node:
        case Program():
            return _program(node)
        case Sweep():
            return _sweep(node)
        case Definition():
            return _definition(node)
        case Reduce():
            return _reduce(node)
        case Each() | Partial() | Combine() | Let():
            return _step(node)
        case _:
            return _expr(node, 0)


def type_text(type_: Type) -> str:
    """Return a type as `f32[m n]`, with `absent` where elements may be absent."""
    return f"{type_.dtype}[{' '.join(type_.axes)}]{' absent' if type_.absent else ''}"


def number_text(value: bool | int | float) -> str:
    """Return a number as the language writes it."""
    if isinstance(value, float) and value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _expr(expr: Expr, level: int) -> str:
    """Return the text of `expr` in a place that binds as tightly as `level`."""
    match expr:
        case Literal(value):
            text = number_text(value)
            return _enclose(text, _LEVELS["neg"] if text.startswith("-") else _ATOM, level)
        case Index(axis):
            return axis
        case Size(axis):
            return f"size({axis})"
        case Scalar(name) | Ref(name):
            return name
        case Load(array, subscripts, guarded):
            places = (
                _expr(part, 0) + ("?" if guard else "")
                for part, guard in zip(subscripts, guarded, strict=True)
            )
            return f"{array}[{', '.join(places)}]"
        case Apply(op, arguments):
            return _apply(op, arguments, level)
        case Cast(operand, to, _, explicit):
            return f"{to if explicit else _KINDS[to.kind]}({_expr(operand, 0)})"
        case Mask(condition, operand):
            return f"where({_expr(condition, 0)}, {_expr(operand, 0)})"
        case Fill(operand, value):
            return f"fill({_expr(operand, 0)}, {_expr(value, 0)})"
        case _:
            assert_never(expr)


def _apply(op: str, arguments: Sequence[Expr], level: int) -> str:
    own = _LEVELS.get(op)
    if own is None:
        return f"{op}({', '.join(_expr(argument, 0) for argument in arguments)})"
    symbol = OPERATORS[op].symbol
    if len(arguments) == 1:
        return _enclose(f"{symbol}{_expr(arguments[0], own)}", own, level)
    # Powers group to the right and comparisons not at all; everything else groups to the left.
    left = own + 1 if op == "pow" or own == _COMPARE else own
    right = _LEVELS["neg"] if op == "pow" else own + 1
    text = f"{_expr(arguments[0], left)} {symbol} {_expr(arguments[1], right)}"
    return _enclose(text, own, level)


def _enclose(text: str, own: int, level: int) -> str:
    return f"({text})" if own < level else text


def _reduce(node: Reduce) -> str:
    axes = ", ".join(node.axes)
    if node.new_axis is not None:
        axes += f":{node.new_axis}"
    arguments = [_expr(operand, 0) for operand in node.operands]
    if node.k is not None:
        arguments.append(str(node.k))
    name = node.monoid.name if node.monoid is not None else node.op
    return f"{name}[{axes}]({', '.join(arguments)}){_condition(node.condition)}"


def _condition(condition: Expr | None) -> str:
    return "" if condition is None else f" if {_expr(condition, 0)}"


def _names(names: Sequence[str], types: Sequence[Type]) -> str:
    # `verify` prints what is broken too, even names without a type.
    return ", ".join(
        f"{name or '?'}: {type_text(type_) if type_ is not None else '?'}"
        for name, type_ in zip_longest(names, types)
    )


def _definition(node: Definition) -> str:
    value = node.value
    if isinstance(value, Reduce):
        return f"{_names(node.names, value.types)} = {_reduce(value)}"
    return f"{_names(node.names, (value.type,))} = {_expr(value, 0)}"


def _dims(dims: Sequence[Dim]) -> str:
    return " ".join(
        dim.axes[0] if len(dim.axes) == 1 else f"({' '.join(dim.axes)})" for dim in dims
    )


def _param(param: Param) -> str:
    match param:
        case ArrayParam(name, dims, dtype):
            return f"{name}: {dtype}[{_dims(dims)}]"
        case ScalarParam(name, dtype, weak, captured, default):
            kind = _KINDS[dtype.kind] if weak else f"{dtype}[]"
            text = f"{name}: {kind}"
            if default is not None:
                text += f" = {number_text(default)}"
            return f"{text} captured" if captured else text
        case _:
            assert_never(param)


def _axis(axis: Axis) -> str:
    least = f" >= {axis.least}" if axis.least else ""
    if axis.extent is None:
        return f"{axis.name}{least}"
    extent = axis.extent if isinstance(axis.extent, int) else _expr(axis.extent, 0)
    return f"{axis.name}{least}" if axis.name == str(extent) else f"{axis.name}={extent}{least}"


def _result(result: Result) -> str:
    return f"return {result.dtype}[{_dims(result.dims)}] {_expr(result.value, 0)}"


def _program(program: Program) -> str:
    lines = [f"program {program.name}"]
    lines += [f"  param {_param(param)}" for param in program.params]
    if program.axes:
        lines.append(f"  axes {', '.join(map(_axis, program.axes))}")
    for monoid in _monoids(program.definitions):
        lines += [f"  {line}" for line in _monoid(monoid)]
    lines += [f"  {_definition(definition)}" for definition in program.definitions]
    lines += [f"  {_result(result)}" for result in program.results]
    return "\n".join(lines) + "\n"


def _monoids(definitions: Iterable[Definition]) -> list[Monoid]:
    found: list[Monoid] = []
    for definition in definitions:
        value = definition.value
        if isinstance(value, Reduce) and value.monoid is not None and value.monoid not in found:
            found.append(value.monoid)
    return found


def _monoid(monoid: Monoid) -> list[str]:
    parts = (
        ("init", monoid.init),
        ("lift", monoid.lift),
        ("combine", monoid.combine),
        ("finish", monoid.finish),
    )
    lines = [f"monoid {monoid.name}"]
    return lines + [f"  {name} {', '.join(_expr(e, 0) for e in exprs)}" for name, exprs in parts]


def _state(state: State) -> str:
    slots = f" x {state.k}" if state.k is not None else ""
    return f"state {state.name}: {type_text(state.type)}{slots} = {_expr(state.initial, 0)}"


def _step(step: Step) -> str:
    match step:
        case Each(name, value):
            return f"each {_names((name,), (value.type,))} = {_expr(value, 0)}"
        case Let(name, value):
            return f"let {_names((name,), (value.type,))} = {_expr(value, 0)}"
        case Partial(names, op, values, condition, types, k, monoid):
            arguments = [_expr(value, 0) for value in values] + ([str(k)] if k is not None else [])
            label = monoid.name if monoid is not None else op
            text = f"{label}({', '.join(arguments)}){_condition(condition)}"
            return f"partial {_names(names, types)} = {text}"
        case Combine(names, op, left, right, types, k, monoid):
            label = monoid.name if monoid is not None else op
            slots = f", {k}" if k is not None else ""
            sides = f"{_tuple(left)}, {_tuple(right)}{slots}"
            return f"combine {_names(names, types)} = {label}({sides})"
        case _:
            assert_never(step)


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _commits(commits: Sequence[Commit]) -> list[str]:
    return [f"  commit {commit.state} = {commit.value}" for commit in commits]


def _sweep(sweep: Sweep) -> str:
    lines = [f"sweep {', '.join(sweep.axes)}: {', '.join(sweep.stages)}"]
    lines += [_state(state) for state in sweep.states]
    lines += ["update", *(f"  {_step(step)}" for step in sweep.update), *_commits(sweep.commits)]
    lines += ["merge", *(f"  {_step(step)}" for step in sweep.merge)]
    lines += _commits(sweep.merge_commits)
    lines += ["finish", *(f"  {_step(step)}" for step in sweep.finish)]
    return "\n".join(_indent(lines)) + "\n"


def _indent(lines: list[str]) -> list[str]:
    return [lines[0], *(f"  {line}" for line in lines[1:])]
