"""Python that is not redlang: each construct by its name, with what to write instead.

The language is a subset of Python's syntax, so where the grammar refuses a line, Python's own
parser mostly says what its author had in mind. A node that always gets the same message has it in
the tables of `advice.py`; the others have a method here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from redlang.frontend.advice import (
    ANNOTATION_HINT,
    CONSTANTS,
    EXPRESSIONS,
    OPERATORS,
    PRINT,
    STATEMENTS,
)
from redlang.frontend.pythons import python_tree
from redlang.frontend.syntax import ArrayAnnotation
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redlang.frontend.build import Builder


class Foreign(ast.NodeVisitor):
    """Notes on `builder` what a tree of Python holds that redlang does not have."""

    def __init__(self, builder: Builder, text: str) -> None:
        self.builder = builder
        self.text = text
        self.starts = [0, *(end.end() for end in re.finditer(r"\r\n?|\n", text))]

    def span(self, node: ast.expr | ast.stmt | ast.arg) -> Span:
        """Return where `node` stands in the source."""
        start = self.offset(node.lineno, node.col_offset)
        stop = self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return Span(start, max(start, stop))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place that Python counts in UTF-8 bytes."""
        start = self.starts[line - 1]
        inside = self.text[start : start + column].encode()[:column].decode(errors="ignore")
        return self.builder.offset + start + len(inside)

    def note(self, message: tuple[str, str], node: ast.expr | ast.stmt | ast.arg) -> None:
        """Note a mistake at `node`."""
        self.builder.note(*message, self.span(node))

    def generic_visit(self, node: ast.AST) -> None:
        """Note what the tables name; look into everything else."""
        if isinstance(node, ast.stmt) and type(node) in STATEMENTS:
            self.note(STATEMENTS[type(node)], node)
        elif isinstance(node, ast.expr) and type(node) in EXPRESSIONS:
            self.note(EXPRESSIONS[type(node)], node)
        else:
            super().generic_visit(node)

    # Signatures

    def signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note what is wrong with the first line of a function."""
        if isinstance(node, ast.AsyncFunctionDef):
            self.note(STATEMENTS[ast.AsyncFunctionDef], node)
        arguments = node.args
        if arguments.posonlyargs:
            message = ("'/' has no meaning in a kernel", "remove it")
            self.note(message, arguments.posonlyargs[-1])
        for star, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
            if argument is not None:
                name = argument.arg
                hint = "name every parameter; a lone '*' opens those given by keyword"
                self.note((f"'{star}{name}' takes any number of arguments", hint), argument)
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.builder.names.add(argument.arg)
            self.annotation(argument.annotation, argument)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None and not _is_number(default):
                hint = "write a number; or drop the parameter, and read the name at each call"
                text = ast.unparse(default)
                self.note((f"the default {text} is not a number", hint), default)
        self.results(node.returns)

    def annotation(self, node: ast.expr | None, argument: ast.arg) -> None:
        """Note what is wrong with a parameter's annotation."""
        match node:
            case None | ast.Name(id="float" | "int" | "bool"):
                self.builder.annotations[argument.arg] = None
            case ast.Constant(value=str()):
                self.builder.annotations[argument.arg] = self.string(node)
            case _:
                text = ast.unparse(node)
                problem = f"{text} does not say which axes {argument.arg} has"
                self.note((problem, ANNOTATION_HINT), node)

    def results(self, node: ast.expr | None) -> None:
        """Note what is wrong with the annotation of the results."""
        match node:
            case None:
                return
            case ast.Constant(value=str()):
                self.string(node)
            case ast.Tuple(elts=[_, *_] as parts) if all(map(_is_string, parts)):
                for part in parts:
                    self.string(part)
            case _:
                problem = f"{ast.unparse(node)} does not say which axes the result has"
                hint = 'write -> "b n", for several results -> ("b n", "b"), for a number -> ""'
                self.note((problem, hint), node)

    def string(self, node: ast.expr) -> ArrayAnnotation | None:
        """Return an array annotation, checked; None if it is no plain string."""
        span = self.span(node)
        text = self.builder.text[span.start : span.stop]
        if text[:1] in "rRuU'\"" and text.count(text[-1]) in (2, 6):
            return self.builder.array(text, span)
        message = ("an array annotation is one plain string", 'write "b n" or "f16[b n]"')
        self.note(message, node)
        return None

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        """Note that a value is not used, unless something else is wrong with it."""
        match node.value:
            case ast.Call(func=ast.Name(id="print")):
                self.note(PRINT, node)
            case ast.Constant(value=str()):
                message = ("a string stands where a definition should", "write a comment: # ...")
                self.note(message, node)
            case value:
                noted = len(self.builder.mistakes)
                self.visit(value)
                if len(self.builder.mistakes) == noted:
                    hint = "give it a name, return it, or remove the line"
                    self.note(("nothing is done with this value", hint), node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note targets that are no names."""
        if len(node.targets) > 1:
            self.note(("two assignments share a line", "write one below the other"), node)
        for target in node.targets:
            self.target(target)
        if isinstance(node.value, ast.Tuple):
            message = ("several values stand behind '='", "write one assignment a line")
            self.note(message, node.value)
        else:
            self.visit(node.value)

    def target(self, node: ast.expr) -> None:
        """Note what is no name or no list of names."""
        match node:
            case ast.Name(id=name):
                self.builder.names.add(name)
            case ast.Tuple(elts=[_]):
                self.note(("the comma unpacks one value", "remove it: a = x"), node)
            case ast.Tuple(elts=parts) if parts:
                for part in parts:
                    if isinstance(part, ast.Tuple):
                        self.note(("results are not nested", "write a, b, c = x"), part)
                    else:
                        self.target(part)
            case ast.Subscript(value=value):
                name = ast.unparse(value)
                hint = f"define a new value as a whole: y = where(n == 0, 1, {name})"
                self.note((f"elements of {name} cannot be assigned", hint), node)
            case ast.Attribute():
                self.note(("an attribute cannot be assigned", "use a plain name"), node)
            case ast.Starred():
                self.note(("'*' does not collect results here", "name each of them"), node)
            case _:
                self.note(("results are assigned to plain names", "write a, b = x"), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Note annotations of locals."""
        name = ast.unparse(node.target)
        hint = f"write {self.assignable(name)} = ...; a cast sets the element type: f32(x)"
        self.note((f"the local {name!r} has an annotation", hint), node)
        self.visit_all([node.value])

    def assignable(self, name: str) -> str:
        """Return a name that may be assigned: another one for a parameter."""
        if name not in self.builder.annotations:
            return name
        return next(f"{name}{i}" for i in count(2) if f"{name}{i}" not in self.builder.names)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Note assignments in place."""
        if not isinstance(node.target, ast.Name):
            self.target(node.target)
            self.visit(node.value)
            return
        name = node.target.id
        new = self.assignable(name)
        operator = ast.unparse(ast.BinOp(ast.Name("_"), node.op, ast.Name("_")))[2:-2]
        hint = f"write {new} = {name} {operator} {ast.unparse(node.value)}"
        hint += f", and {new} below: {name} is a parameter" if new != name else ""
        self.note((f"'{operator}=' changes a value in place", hint), node)
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        """Note what cannot be a result."""
        match node.value:
            case None | ast.Constant(value=None) | ast.Tuple(elts=[]):
                self.note(("nothing is returned", "write return and a value"), node)
            case ast.Tuple(elts=[_]):
                self.note(("the comma makes a tuple of one", "remove it: return x"), node.value)
            case ast.Tuple(elts=parts):
                self.visit_all(parts)
            case value:
                self.visit(value)

    # Expressions

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit several nodes."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Note constants that are no numbers."""
        if type(node.value) in CONSTANTS:
            self.note(CONSTANTS[type(node.value)], node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note attributes of anything but a name."""
        name = _dotted(node)
        if name:
            self.builder.check_attribute(name, self.span(node))
        else:
            self.builder.note_attribute("an expression", node.attr, self.span(node))
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Note what is called or passed in no way that a kernel has."""
        match node.func:
            case ast.Subscript(value=function, slice=axes) if _dotted(function):
                for axis in axes.elts if isinstance(axes, ast.Tuple) else [axes]:
                    self.axis(ast.unparse(function), axis)
            case ast.Name() | ast.Attribute():
                self.visit(node.func)
            case _:
                message = ("only a function with a name can be called", "define a macro")
                self.note(message, node.func)
        self.visit_all(node.args)
        for keyword in node.keywords:
            if keyword.arg is None:
                message = ("'**' does not unpack here", "write the arguments one by one")
                self.note(message, keyword.value)
            else:
                self.visit(keyword.value)

    def axis(self, function: str, node: ast.expr) -> None:
        """Note what is no axis between a function's name and its arguments."""
        match node:
            case ast.Name() | ast.Slice(lower=ast.Name(), upper=ast.Name(), step=None):
                return
            case _:
                problem = f"'{ast.unparse(node)}' is not the name of an axis"
                self.note((problem, f"name an axis: {function}[n](...)"), node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note subscripts of anything but a name."""
        if isinstance(node.value, ast.Subscript):
            hint = "one pair of brackets holds all of them: x[i, j]"
            self.note(("brackets follow brackets", hint), node)
        elif not _dotted(node.value):
            message = (
                "an expression has subscripts",
                "index a parameter; values meet by the names of their axes",
            )
            self.note(message, node)
        self.visit(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        self.visit_all(parts if not self.ranges(_dotted(node.value), parts) else ())

    def ranges(self, name: str, parts: Sequence[ast.expr]) -> bool:
        """Note ranges among the subscripts of a parameter, and return whether there are any.

        `x[:, 0]` is `x[m, 0]`, and of `x[:, :3]` a condition chooses the elements.
        """
        dims = self.dims(name)
        found = next((part for part in parts if _is_range(part)), None)
        filled = _filled(parts, len(dims))
        if found is None or filled is None:
            return False
        texts, conditions = [], []
        for part, axis in zip(filled, dims, strict=True):
            if not _is_range(part):
                texts.append(ast.unparse(part))
                continue
            condition = _between(part, axis)
            if not axis or condition is None:
                return False
            texts.append(axis)
            conditions += [condition] if condition else []
        read = name if texts == dims else f"{name}[{', '.join(texts)}]"
        hint = f"an axis is taken whole, by its name: {read}"
        if conditions:
            chosen = f"where({' and '.join(conditions)}, {read})"
            hint = f"an axis is always taken whole; {chosen} leaves elements out"
        known = CONSTANTS[type(...)] if isinstance(found, ast.Constant) else EXPRESSIONS[ast.Slice]
        self.note((known[0], hint), found)
        self.visit_all(part for part in parts if not _is_range(part))
        return True

    def dims(self, name: str) -> list[str]:
        """Return the axis of each dimension of a parameter; nothing for one without a name."""
        annotation = self.builder.annotations.get(name)
        dims = annotation.dims if isinstance(annotation, ArrayAnnotation) else ()
        return [(len(dim.axes) == 1 and dim.axes[0].name) or "" for dim in dims]

    def axes(self, name: str) -> list[str]:
        """Return the named axes of a parameter."""
        annotation = self.builder.annotations.get(name)
        dims = annotation.dims if isinstance(annotation, ArrayAnnotation) else ()
        return [axis.name for dim in dims for axis in dim.axes if axis.name]

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Note operators that the language lacks."""
        if type(node.op) in OPERATORS:
            problem, hint = OPERATORS[type(node.op)]
            if isinstance(node.op, ast.MatMult):
                hint = self.product(node) or hint
            self.note((problem, hint), node)
        self.visit_all([node.left, node.right])

    def product(self, node: ast.BinOp) -> str:
        """Return how redlang writes `a @ b` of two parameters that share one axis."""
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        shared = [axis for axis in self.axes(left) if axis in self.axes(right)]
        return f"write the sum: sum[{shared[0]}]({left} * {right})" if len(shared) == 1 else ""

    def visit_Compare(self, node: ast.Compare) -> None:
        """Note comparisons that the language lacks."""
        for operator in node.ops:
            if type(operator) in OPERATORS:
                self.note(OPERATORS[type(operator)], node)
        self.visit_all([node.left, *node.comparators])


def find_foreign(builder: Builder, text: str, *, header: bool = False) -> None:
    """Note on `builder` what `text`, a line of Python, holds that redlang does not have."""
    tree = python_tree(text)
    if tree is None:
        return
    foreign = Foreign(builder, text)
    for node in tree.body:
        if not header:
            foreign.visit(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            foreign.signature(node)
            # A body on the same line, or the word that stands for one below.
            foreign.visit_all(line for line in node.body if not isinstance(line, ast.Pass))
        elif isinstance(node, ast.ClassDef):
            for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
                hint = f"a monoid stands alone: class {node.name}:"
                foreign.note(("the class has a base class", hint), base)


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) or (isinstance(node, ast.Constant) and node.value is ...)


def _filled(parts: Sequence[ast.expr], number: int) -> list[ast.expr] | None:
    """Return subscripts for that many dimensions, as NumPy reads `...` and fewer; None if not."""
    if len(parts) > number or any(
        isinstance(part, ast.Constant) and part.value is None for part in parts
    ):
        return None
    dots = [i for i, part in enumerate(parts) if isinstance(part, ast.Constant) and _is_range(part)]
    place = dots[0] if dots else len(parts)
    behind = parts[place + 1 :]
    wholes = [ast.Slice()] * (number - place - len(behind))
    return [*parts[:place], *wholes, *behind] if len(dots) < 2 else None


def _between(node: ast.expr, axis: str) -> str | None:
    """Return the condition under which an axis lies in a range; None if its step or ends say no."""
    match node:
        case ast.Slice(lower=None, upper=None, step=None):
            return ""
        case ast.Slice(lower=ast.UnaryOp()) | ast.Slice(upper=ast.UnaryOp()):
            return None
        case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as upper, step=None):
            return f"{axis} < {ast.unparse(upper)}"
        case ast.Slice(lower=ast.expr() as lower, upper=None, step=None):
            return f"{axis} >= {ast.unparse(lower)}"
        case ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper, step=None):
            return f"{ast.unparse(lower)} <= {axis} < {ast.unparse(upper)}"
        case _:
            return None


def _dotted(node: ast.expr) -> str:
    """Return a name with its dots; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            front = _dotted(value)
            return front and f"{front}.{attribute}"
        case _:
            return ""


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_number(operand)
        case ast.Constant(value=bool() | int() | float()):
            return True
        case _:
            return _dotted(node).rpartition(".")[2] in {"inf", "nan", "pi"}
