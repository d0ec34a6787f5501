"""Syntax to text: what `parse` reads back as the same tree.

Parentheses stand where precedence needs them, and around `& | ^ ~` beside a comparison, where the
language asks for them.
"""

from __future__ import annotations

import math
from typing import assert_never

from redlang.frontend.syntax import (
    ArrayAnnotation,
    Assign,
    AxisBinding,
    AxisSpec,
    Binary,
    Call,
    Compare,
    Decorator,
    DimSpec,
    Expr,
    Function,
    IfElse,
    MonoidClass,
    Name,
    Number,
    Parameter,
    Return,
    ScalarAnnotation,
    Statement,
    Subscript,
    Syntax,
    Unary,
)

INDENT = "    "

# Levels of `redlang.lark`, loosest first.
IF_ELSE, OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SUM, PRODUCT, FACTOR, POWER, ATOM = range(
    13
)
# fmt: off
BINARY_LEVELS = {
    "or": OR, "and": AND, "|": BIT_OR, "^": BIT_XOR, "&": BIT_AND, "+": SUM, "-": SUM,
    "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "**": POWER,
}
# fmt: on
BITWISE = {"&", "|", "^", "~"}


def unparse(syntax: Syntax) -> str:
    """Return the text of a definition, without a line end behind it."""
    lines = [_decorator(decorator) for decorator in syntax.decorators]
    match syntax:
        case Function():
            lines.append(_header(syntax))
            body = [_statement(statement) for statement in syntax.body]
        case MonoidClass(name, _, methods):
            lines.append(f"class {name}:")
            body = [line for method in methods for line in unparse(method).split("\n")]
        case _:
            assert_never(syntax)
    if syntax.docstring is not None:
        body.insert(0, _string(syntax.docstring, '"""'))
    return "\n".join([*lines, *(f"{INDENT}{line}" for line in body)])


def _header(function: Function) -> str:
    parameters = [_parameter(parameter) for parameter in function.parameters]
    positional = sum(not parameter.keyword_only for parameter in function.parameters)
    if positional < len(parameters):
        parameters.insert(positional, "*")
    match function.returns:
        case None:
            arrow = ""
        case (single,):
            arrow = f" -> {annotation_text(single)}"
        case several:
            arrow = f" -> ({', '.join(map(annotation_text, several))})"
    return f"def {function.name}({', '.join(parameters)}){arrow}:"


def _parameter(parameter: Parameter) -> str:
    text = parameter.name
    if parameter.annotation is not None:
        text += f": {annotation_text(parameter.annotation)}"
    if parameter.default is None:
        return text
    equals = "=" if parameter.annotation is None else " = "
    return f"{text}{equals}{parameter.default!r}"


def annotation_text(annotation: ArrayAnnotation | ScalarAnnotation) -> str:
    """Return an annotation as it stands in a signature, arrays in quotes."""
    match annotation:
        case ScalarAnnotation(kind):
            return kind
        case ArrayAnnotation(None, dims):
            return f'"{" ".join(map(_dim, dims))}"'
        case ArrayAnnotation(dtype, dims):
            return f'"{dtype}[{" ".join(map(_dim, dims))}]"'
        case _:
            assert_never(annotation)


def _dim(dim: DimSpec) -> str:
    axes = " ".join(map(_axis, dim.axes))
    return axes if len(dim.axes) == 1 else f"({axes})"


def _axis(axis: AxisSpec) -> str:
    return "=".join(str(part) for part in (axis.name, axis.extent) if part is not None)


def _decorator(decorator: Decorator) -> str:
    options = [*decorator.computed]
    for name, value in decorator.options:
        options.append(f"{name}={_string(value) if isinstance(value, str) else repr(value)}")
    return f"@{decorator.name}({', '.join(options)})" if options else f"@{decorator.name}"


def _statement(statement: Statement) -> str:
    match statement:
        case Assign(targets, value):
            return f"{', '.join(target.text for target in targets)} = {_expr(value)}"
        case Return(values):
            return f"return {', '.join(map(_expr, values))}"
        case _:
            assert_never(statement)


def expression_text(expr: Expr) -> str:
    """Return the text of an expression."""
    return _expr(expr)


def _expr(expr: Expr, level: int = IF_ELSE) -> str:
    """Return the text of `expr` where only what binds at least as tight as `level` may stand."""
    text = _bare(expr)
    return f"({text})" if _level(expr) < level else text


def _level(expr: Expr) -> int:
    match expr:
        case IfElse():
            return IF_ELSE
        case Binary(op):
            return BINARY_LEVELS[op]
        case Unary(op):
            return NOT if op == "not" else FACTOR
        case Compare():
            return COMPARE
        case Number() | Name() | Call() | Subscript():
            return ATOM
        case _:
            assert_never(expr)


def _bare(expr: Expr) -> str:
    match expr:
        case Number(value):
            # The only literal for infinity is a number that overflows.
            return "1e999" if value == math.inf else repr(value)
        case Name(text):
            return text
        case Unary("not", operand):
            return f"not {_expr(operand, NOT)}"
        case Unary(op, operand):
            return f"{op}{_expr(operand, FACTOR)}"
        case Binary("**", left, right):
            return f"{_expr(left, ATOM)} ** {_expr(right, FACTOR)}"
        case Binary(op, left, right):
            level = BINARY_LEVELS[op]
            return f"{_expr(left, level)} {op} {_expr(right, level + 1)}"
        case Compare(ops, operands):
            first, *rest = map(_compared, operands)
            return " ".join([first, *(f"{op} {text}" for op, text in zip(ops, rest, strict=True))])
        case IfElse(condition, then, otherwise):
            return f"{_expr(then, OR)} if {_expr(condition, OR)} else {_expr(otherwise)}"
        case Subscript(array, subscripts):
            return f"{array.text}[{', '.join(map(_expr, subscripts))}]"
        case Call():
            return _call(expr)
        case _:
            assert_never(expr)


def _compared(expr: Expr) -> str:
    text = _expr(expr, BIT_OR)
    bitwise = isinstance(expr, Binary | Unary) and expr.op in BITWISE
    return f"({text})" if bitwise else text


def _call(call: Call) -> str:
    axes = f"[{', '.join(map(_binding, call.axes))}]" if call.axes else ""
    arguments = [_expr(argument) for argument in call.arguments]
    arguments += [f"{keyword.name}={_expr(keyword.value)}" for keyword in call.keywords]
    return f"{call.function.text}{axes}({', '.join(arguments)})"


def _binding(binding: AxisBinding) -> str:
    return binding.name if binding.target is None else f"{binding.name}:{binding.target}"


def _string(value: str, quotes: str = '"') -> str:
    """Return a literal on one line."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = "".join(char if char.isprintable() else _escape(char) for char in escaped)
    return f"{quotes}{escaped}{quotes}"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
