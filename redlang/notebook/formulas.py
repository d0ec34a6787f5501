r"""Printed formulas to LaTeX: `S0' = S1 * (c - c') + S0` to `S_0' = S_1 \left(c - c'\right) + S_0`.

The printer's formulas are Python expressions but for primes and `=` between them, so Python's
parser reads them. What it cannot read has no LaTeX, and is shown as text.
"""

from __future__ import annotations

import ast
import re

PRIME, DOT = "ʹ", "·"
"""Letters to Python's parser, in place of the prime of a new value and the dot in `sum.1`."""

FUNCTIONS = {"exp", "log", "sin", "cos", "tanh", "max", "min"}
RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "=",
    ast.NotEq: r"\neq",
    ast.Lt: "<",
    ast.LtE: r"\leq",
    ast.Gt: ">",
    ast.GtE: r"\geq",
}
SUM, PRODUCT, SIGN, POWER, ATOM = range(5)
"""How tightly a piece of LaTeX holds together."""


def to_latex(text: str) -> str | None:
    """Return a formula, or an equation of formulas, as LaTeX; None if it is neither."""
    words = r" +(running mean|running maximum|sum|maximum|minimum) of "
    if found := re.match(rf"^(?P<left>\S+) ={words}(?P<right>.+)$", text):
        left, right = to_latex(found["left"]), to_latex(found["right"])
        what = re.search(words, text)
        assert what is not None
        if left is None or right is None:
            return None
        return rf"{left} = \text{{{what[1]} of }} {right}"
    readable = re.sub(r"\b[A-Za-z_]\w*(?:\.\w+)+", lambda m: m[0].replace(".", DOT), text)
    readable = readable.replace("'", PRIME)
    sides = [_side(side) for side in re.split(r"(?<![=!<>])=(?!=)", readable)]
    known = [side for side in sides if side is not None]
    return " = ".join(known) if len(known) == len(sides) else None


def _side(text: str) -> str | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _latex(tree)[0]
    except (SyntaxError, ValueError):
        return None


def _latex(node: ast.expr) -> tuple[str, int]:
    """Return LaTeX and how tightly it binds.

    Raises:
        ValueError: A construct that formulas do not have.
    """
    match node:
        case ast.Constant(value=value) if isinstance(value, bool | int | float):
            return f"{value:g}", ATOM
        case ast.Name(id=name):
            return _name(name), ATOM
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_within(operand, PRODUCT)}", SIGN
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return rf"\neg {_within(operand, POWER)}", SIGN
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(left, op, right)
        case ast.Compare(left=left, ops=ops, comparators=others):
            parts = [_within(left, SUM)]
            for relation, other in zip(ops, others, strict=True):
                parts += [RELATIONS[type(relation)], _within(other, SUM)]
            return " ".join(parts), SUM
        case ast.Subscript(value=value, slice=index):
            subscripts = index.elts if isinstance(index, ast.Tuple) else [index]
            inner = ", ".join(_latex(part)[0] for part in subscripts)
            return rf"{_within(value, ATOM)}_{{{inner}}}", ATOM
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _call(ast.unparse(function), arguments)
        case _:
            raise ValueError(ast.dump(node))


def _binary(left: ast.expr, op: ast.operator, right: ast.expr) -> tuple[str, int]:
    match op:
        case ast.Add():
            return f"{_within(left, SUM)} + {_within(right, SUM)}", SUM
        case ast.Sub():
            return f"{_within(left, SUM)} - {_within(right, PRODUCT)}", SUM
        case ast.Mult():
            return rf"{_within(left, PRODUCT)} \, {_within(right, PRODUCT)}", PRODUCT
        case ast.Div():
            return rf"\frac{{{_latex(left)[0]}}}{{{_latex(right)[0]}}}", POWER
        case ast.Pow():
            return f"{_within(left, ATOM)}^{{{_latex(right)[0]}}}", POWER
        case ast.BitAnd():
            return rf"{_within(left, POWER)} \wedge {_within(right, POWER)}", SUM
        case ast.BitOr():
            return rf"{_within(left, POWER)} \vee {_within(right, POWER)}", SUM
        case _:
            raise ValueError(ast.dump(op))


def _call(name: str, arguments: list[ast.expr]) -> tuple[str, int]:
    inner = ", ".join(_latex(argument)[0] for argument in arguments)
    match name:
        case "float":
            return _latex(arguments[0])
        case "sqrt":
            return rf"\sqrt{{{inner}}}", ATOM
        case "rsqrt":
            return rf"\frac{{1}}{{\sqrt{{{inner}}}}}", POWER
        case "abs":
            return rf"\left|{inner}\right|", ATOM
        case "size":
            return rf"\left|{inner}\right|", ATOM
        case _ if name in FUNCTIONS:
            return rf"\{name}\left({inner}\right)", ATOM
        case _:
            return rf"{_name(name)}\left({inner}\right)", ATOM


def _within(node: ast.expr, strength: int) -> str:
    text, own = _latex(node)
    return text if own >= strength else rf"\left({text}\right)"


def _name(name: str) -> str:
    primes = name.count(PRIME)
    plain = name.replace(PRIME, "").replace(DOT, ".")
    letters = re.fullmatch(r"([A-Za-z])(\d*)", plain)
    if letters:
        body = letters[1] + (f"_{{{letters[2]}}}" if letters[2] else "")
    else:
        body = rf"\mathrm{{{_escaped(plain)}}}"
    return body + "'" * primes


def _escaped(name: str) -> str:
    return name.replace("_", r"\_")
