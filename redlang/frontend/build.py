"""Lark's tree to Syntax nodes, with a note of everything that has no meaning.

There is one method for each rule of the grammar. A node's span covers its text; a parenthesised
expression's span covers the parentheses. Functions, classes and parameters carry the span of their
name, since that is where an error about them points.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import unicodedata
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from redlang.frontend.annotations import parse_annotation
from redlang.frontend.refusal import Read, mistake
from redlang.frontend.syntax import (
    ArrayAnnotation,
    Assign,
    AxisBinding,
    Binary,
    Call,
    Compare,
    Decorator,
    Expr,
    Function,
    IfElse,
    Keyword,
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
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lark import Token, Tree

    from redlang.errors import KernelSyntaxError

    Child: TypeAlias = Token | Tree[Token]

MAX_DEPTH = 150
"""Levels of nesting in one expression; later stages walk it by recursion."""

CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


class Builder:
    """Builds the nodes of one text and collects its mistakes.

    Attributes:
        mistakes: What has no meaning although the grammar reads it.
    """

    def __init__(self, text: str, read: Read, offset: int = 0) -> None:
        self.text = text
        self.read = read
        self.offset = offset
        self.depth = 0
        self.too_deep = False
        self.mistakes: list[KernelSyntaxError] = []

    def span(self, child: Child) -> Span:
        """Return where `child` stands in the source."""
        place = child.meta if _is_tree(child) else child
        return Span(place.start_pos + self.offset, place.end_pos + self.offset)

    def note(self, problem: str, hint: str, span: Span) -> None:
        """Note a mistake."""
        self.mistakes.append(mistake(problem, hint, span))

    # Definitions

    def definition(self, tree: Tree[Token]) -> Syntax:
        """Build `definition`."""
        *decorators, last = _trees(tree.children)
        built = tuple(self.decorator(child) for child in decorators)
        if last.data == "function":
            return self.function(last, built)
        return self.monoid(last, built)

    def decorator(self, tree: Tree[Token]) -> Decorator:
        """Build `decorator`."""
        name, *options = _trees(tree.children)
        literal: list[tuple[str, bool | int | float | str]] = []
        computed: list[str] = []
        for option in _trees(options[0].children) if options else ():
            keyword, value = option.children[0], option.children[-1]
            constant = self._constant(value)
            if len(option.children) == 1 or keyword.type != "NAME" or constant is None:
                span = self.span(option)
                computed.append(self.text[span.start : span.stop])
            else:
                literal.append((str(keyword), constant))
        span = self.span(tree)
        stop = span.start + len(self.text[span.start : span.stop].rstrip())
        return Decorator(_dotted(name), tuple(literal), tuple(computed), Span(span.start, stop))

    def _constant(self, value: Child) -> bool | int | float | str | None:
        if not _is_tree(value):
            return str(ast.literal_eval(value)) if value.type == "STRING" else None
        if value.data == "number":
            return _number(value.children[0])
        if value.data == "unary" and value.children[1].data == "number":
            number = _number(value.children[1].children[0])
            return {"-": -number, "+": +number}.get(str(value.children[0]))
        return None

    def function(self, tree: Tree[Token], decorators: tuple[Decorator, ...]) -> Function:
        """Build `function`."""
        name, *rest = tree.children
        parts = _trees(rest)
        parameters, returns = self.signature(parts)
        documents = [_docstring(part) for part in parts if part.data == "docstring"]
        lines = [part for part in parts if part.data == "line"]
        body = tuple(statement for line in lines for statement in self.line(line))
        self.check_body(str(name), body, self.span(name))
        return Function(
            _name(name),
            parameters,
            returns,
            documents[0] if documents else None,
            body,
            decorators,
            self.span(name),
        )

    def check_body(self, name: str, body: Sequence[Statement], span: Span) -> None:
        """Note a body that does not end with its only return."""
        returns = [statement for statement in body if isinstance(statement, Return)]
        if not returns:
            self.note(f"{name} returns nothing", "end it with: return <expression>", span)
        elif body[-1] is not returns[0]:
            after = body[body.index(returns[0]) + 1]
            hint = "a body is one list of definitions that ends with one return"
            self.note("this statement stands behind the return", hint, after.span)

    def monoid(self, tree: Tree[Token], decorators: tuple[Decorator, ...]) -> MonoidClass:
        """Build `monoid`."""
        name, *rest = tree.children
        parts = _trees(rest)
        documents = [_docstring(part) for part in parts if part.data == "docstring"]
        methods = []
        for part in parts:
            if part.data == "method":
                *above, function = _trees(part.children)
                built = tuple(self.decorator(child) for child in above)
                methods.append(self.function(function, built))
        document = documents[0] if documents else None
        return MonoidClass(_name(name), document, tuple(methods), decorators, self.span(name))

    # Signatures

    def signature(
        self, parts: Sequence[Tree[Token]]
    ) -> tuple[tuple[Parameter, ...], tuple[ArrayAnnotation, ...] | None]:
        """Build `parameters` and `results`, each of which may be missing."""
        parameters: tuple[Parameter, ...] = ()
        returns: tuple[ArrayAnnotation, ...] | None = None
        for part in parts:
            if part.data == "parameters":
                parameters = self.parameters(part)
            elif part.data == "results":
                returns = tuple(self.array(child) for child in part.children)
        return parameters, returns

    def parameters(self, tree: Tree[Token]) -> tuple[Parameter, ...]:
        """Build `parameters`, checked as Python checks them."""
        built: list[Parameter] = []
        star: Child | None = None
        for child in tree.children:
            if _is_tree(child):
                built.append(self.parameter(child, keyword_only=star is not None))
            elif star is not None:
                self.note("'*' appears twice", "one '*' opens the keyword parameters", self.span(child))
            else:
                star = child
        self.check_parameters(built)
        if star is not None and not (built and built[-1].keyword_only):
            self.note("no parameter follows '*'", "remove it, or name parameters", self.span(star))
        return tuple(built)

    def check_parameters(self, parameters: Sequence[Parameter]) -> None:
        """Note repeated names, and positional parameters that need a default."""
        seen: set[str] = set()
        defaulted = ""
        for parameter in parameters:
            name = parameter.name
            if name in seen:
                self.note(f"parameter {name!r} appears twice", "rename one of them", parameter.span)
            seen.add(name)
            if parameter.keyword_only:
                continue
            if parameter.default is not None:
                defaulted = name
            elif defaulted:
                problem = f"parameter {name!r} has no default but follows {defaulted!r}, which has one"
                self.note(problem, "move it forward, or put '*' in front of it", parameter.span)

    def parameter(self, tree: Tree[Token], *, keyword_only: bool) -> Parameter:
        """Build `parameter`."""
        name, *rest = tree.children
        annotation: ArrayAnnotation | ScalarAnnotation | None = None
        default: bool | int | float | None = None
        for part in rest:
            if _is_tree(part):
                default = self.default(part)
            elif part.type == "SCALAR":
                annotation = ScalarAnnotation(str(part), self.span(part))
            else:
                annotation = self.array(part)
        return Parameter(_name(name), annotation, default, keyword_only, self.span(name))

    def default(self, tree: Tree[Token]) -> bool | int | float:
        """Build `default`."""
        *sign, value = tree.children
        negative = bool(sign) and sign[0] == "-"
        if _is_tree(value):
            name = _dotted(value)
            number = CONSTANTS.get(name.rpartition(".")[2])
            if number is None:
                hint = f"write the number, or drop the parameter and use {name} in the kernel"
                self.note(f"the default {name!r} is not a number", hint, self.span(value))
                return 0
        else:
            number = _number(value)
        return -number if negative else number

    def array(self, child: Child) -> ArrayAnnotation:
        """Build an array annotation from its string."""
        assert not _is_tree(child)
        token, span = str(child), self.span(child)
        quote = _opening(token)
        inside = Span(span.start + quote, span.stop - len(token[:quote].lstrip("rRuU")))
        content = self.text[inside.start : inside.stop]
        annotation, mistakes = parse_annotation(content, inside, self.read)
        self.mistakes += mistakes
        return annotation

    # Statements

    def line(self, tree: Tree[Token]) -> list[Statement]:
        """Build the statements of a `line`."""
        return [self.statement(child) for child in _trees(tree.children)]

    def statement(self, tree: Tree[Token]) -> Statement:
        """Build `assign` or `return`."""
        if tree.data == "return":
            return Return(tuple(map(self.expression, _trees(tree.children))), self.span(tree))
        *names, value = tree.children
        targets = tuple(Name(_name(name), self.span(name)) for name in names)
        repeated = {name.text for name in targets if targets.count(name) > 1}
        for name in sorted(repeated):
            self.note(f"{name!r} is assigned twice in one line", "rename one", targets[0].span)
        assert _is_tree(value)
        return Assign(targets, self.expression(value), self.span(tree))

    # Expressions

    def expression(self, tree: Tree[Token]) -> Expr:
        """Build any expression."""
        self.depth += 1
        built: Expr = Number(0, self.span(tree))
        if self.depth <= MAX_DEPTH:
            built = getattr(self, f"_{tree.data}")(tree)
        elif not self.too_deep:
            self.too_deep = True
            problem = f"the expression is nested more than {MAX_DEPTH} levels deep"
            self.note(problem, "give names to parts of it", self.span(tree))
        self.depth -= 1
        return built

    def _number(self, tree: Tree[Token]) -> Expr:
        return Number(_number(tree.children[0]), self.span(tree))

    def _name(self, tree: Tree[Token]) -> Expr:
        return Name(_dotted(tree.children[0]), self.span(tree))

    def _parenthesised(self, tree: Tree[Token]) -> Expr:
        inner = self.expression(_trees(tree.children)[0])
        span = self.span(tree)
        if isinstance(inner, Binary | Compare):
            return dataclasses.replace(inner, parenthesised=True, span=span)
        return dataclasses.replace(inner, span=span)

    def _unary(self, tree: Tree[Token]) -> Expr:
        operator, operand = tree.children
        return Unary(str(operator), self.expression(operand), self.span(tree))

    def _binary(self, tree: Tree[Token]) -> Expr:
        left, operator, right = tree.children
        span = self.span(tree)
        return Binary(
            str(operator), self.expression(left), self.expression(right), span=span
        )

    def _compare(self, tree: Tree[Token]) -> Expr:
        operands = tuple(map(self.expression, _trees(tree.children[::2])))
        for operand in operands:
            self._check_beside_comparison(operand)
        return Compare(tuple(map(str, tree.children[1::2])), operands, span=self.span(tree))

    def _check_beside_comparison(self, operand: Expr) -> None:
        """Note `a < b & c < d`, which Python reads as `a < (b & c) < d`."""
        match operand:
            case Binary(op="&" | "|" | "^" as op, parenthesised=False):
                problem = f"{op!r} binds tighter than the comparison beside it, as in Python"
                hint = f"put the comparisons in parentheses: (a < b) {op} (c < d)"
            case Unary(op="~") if self.text[operand.span.start] == "~":
                problem = "'~' binds tighter than the comparison beside it, as in Python"
                hint = "write ~(a < b), or (~a) < b"
            case _:
                return
        self.note(problem, hint, operand.span)

    def _if_else(self, tree: Tree[Token]) -> Expr:
        then, condition, otherwise = map(self.expression, _trees(tree.children))
        return IfElse(condition, then, otherwise, self.span(tree))

    def _subscript(self, tree: Tree[Token]) -> Expr:
        array, items = _trees(tree.children)
        subscripts: list[Expr] = []
        for item in _trees(items.children):
            if item.data == "binding":
                hint = "an array is always taken whole; restrict it with where(lower <= n, x)"
                self.note("an index has no ranges", hint, self.span(item))
            else:
                subscripts.append(self.expression(item))
        return Subscript(self._name_of(array), tuple(subscripts), self.span(tree))

    def _call(self, tree: Tree[Token]) -> Expr:
        function, *rest = _trees(tree.children)
        axes: tuple[AxisBinding, ...] = ()
        arguments: list[Expr] = []
        keywords: list[Keyword] = []
        for part in rest:
            if part.data == "items":
                axes = tuple(self._axis(_dotted(function), item) for item in _trees(part.children))
            else:
                self._arguments(part, arguments, keywords)
        name = self._name_of(function)
        return Call(name, axes, tuple(arguments), tuple(keywords), self.span(tree))

    def _name_of(self, tree: Tree[Token]) -> Name:
        return Name(_dotted(tree), self.span(tree))

    def _axis(self, function: str, tree: Tree[Token]) -> AxisBinding:
        span = self.span(tree)
        if tree.data == "binding":
            name, target = tree.children
            return AxisBinding(_name(name), _name(target), span)
        if tree.data == "name" and len(tree.children[0].children) == 1:
            return AxisBinding(_dotted(tree.children[0]), None, span)
        found = self.text[span.start : span.stop]
        hint = f"write {function}[n](...) with the name of an axis"
        self.note(f"{found!r} is no axis name", hint, span)
        return AxisBinding(found, None, span)

    def _arguments(
        self, tree: Tree[Token], arguments: list[Expr], keywords: list[Keyword]
    ) -> None:
        for child in _trees(tree.children):
            span = self.span(child)
            if child.data == "keyword":
                name, value = child.children
                if any(keyword.name == name for keyword in keywords):
                    self.note(f"the argument {name!r} is given twice", "remove one", span)
                keywords.append(Keyword(_name(name), self.expression(value), span))
            else:
                if keywords:
                    hint = "put positional arguments first"
                    self.note("a positional argument follows a keyword", hint, span)
                arguments.append(self.expression(child))


def _is_tree(child: Child) -> TypeGuard[Tree[Token]]:
    return hasattr(child, "data")


def _trees(children: Sequence[Child]) -> list[Tree[Token]]:
    return [child for child in children if _is_tree(child)]


def _name(token: Child) -> str:
    """Return a name as Python compares it: in the normal form NFKC."""
    return unicodedata.normalize("NFKC", str(token))


def _dotted(tree: Tree[Token]) -> str:
    return ".".join(map(_name, tree.children))


def _number(token: Child) -> bool | int | float:
    value: bool | int | float = ast.literal_eval(str(token))
    return value


def _opening(token: str) -> int:
    """Return the length of a string's prefix and opening quotes."""
    prefix = len(token) - len(token.lstrip("rRuU"))
    return prefix + (3 if token[prefix : prefix + 3] in ('"""', "'''") else 1)


def _docstring(tree: Tree[Token]) -> str:
    return "".join(ast.literal_eval(str(token)) for token in tree.children if token.type == "STRING")
