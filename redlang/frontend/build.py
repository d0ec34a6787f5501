"""Lark's tree to Syntax nodes, with a note of everything that has no meaning.

There is one method for each rule of the grammar. A node's span covers its text; a parenthesised
expression's span covers the parentheses. Functions, classes and parameters carry the span of their
name, since that is where an error about them points.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from redlang.frontend.advice import ANNOTATION_HINT, ATTRIBUTES
from redlang.frontend.annotations import SCALARS, parse_annotation
from redlang.frontend.reading import Node, Read, mistake
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
from redlang.frontend.words import name_of, number_of, opening, string_of
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lark import Token

    from redlang.errors import KernelSyntaxError

MAX_DEPTH = 150
"""Levels of nesting in one expression; later stages walk it by recursion."""

CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


class Builder:
    """Builds the nodes of one text and collects its mistakes.

    Attributes:
        annotations: Those of the parameters.
        mistakes: What has no meaning although the grammar reads it.
    """

    def __init__(self, text: str, read: Read, offset: int = 0) -> None:
        self.text = text
        self.read = read
        self.offset = offset
        self.depth = 0
        self.too_deep = False
        self.names: set[str] = set()
        self.annotations: dict[str, ArrayAnnotation | ScalarAnnotation | None] = {}
        self.mistakes: list[KernelSyntaxError] = []

    def span(self, word: Token) -> Span:
        """Return where a token stands in the source."""
        start = (word.start_pos or 0) + self.offset
        return Span(start, start + len(word))

    def note(self, problem: str, hint: str, span: Span) -> None:
        """Note a mistake."""
        self.mistakes.append(mistake(problem, hint, span))

    def check_attribute(self, name: str, span: Span) -> None:
        """Note `x.sum` where x is a parameter or a local."""
        first, _, rest = name.partition(".")
        if rest and first in self.names:
            self.note_attribute(first, rest, span)

    def note_attribute(self, owner: str, attribute: str, span: Span) -> None:
        """Note that `owner` has no attributes."""
        hint = ATTRIBUTES.get(attribute, "functions are written in front: f(x)")
        self.note(f"{owner} has no attribute {attribute!r}", hint, span)

    # Definitions

    def definition(self, node: Node) -> Syntax:
        """Build `definition`."""
        *above, last = node.nodes
        decorators = tuple(map(self.decorator, above))
        if last.rule == "function":
            return self.function(last, decorators)
        return self.monoid(last, decorators)

    def decorator(self, node: Node) -> Decorator:
        """Build `decorator`."""
        name, *options = node.nodes
        literal: list[tuple[str, bool | int | float | str]] = []
        computed: list[str] = []
        for option in options[0].nodes if options else ():
            value = option.children[-1]
            constant = _constant(value)
            if constant is not None and option.words and option.words[0].type == "NAME":
                literal.append((str(option.words[0]), constant))
            else:
                computed.append(self.option_text(option))
        closing = self.span(node.words[-1]) if len(node.words) > 1 else self.dotted(name).span
        span = self.span(node.words[0]).to(closing)
        return Decorator(_dotted(name), tuple(literal), tuple(computed), span)

    def option_text(self, node: Node) -> str:
        """Return the text of an `option` that Python evaluates."""
        places = [self.span(word) for word in node.words]
        noted = len(self.mistakes)
        places += [self.expression(child).span for child in node.nodes]
        del self.mistakes[noted:]
        return self.text[places[0].start : places[-1].stop]

    def function(self, node: Node, decorators: tuple[Decorator, ...]) -> Function:
        """Build `function`."""
        (name,) = node.words
        parameters: tuple[Parameter, ...] = ()
        returns: tuple[ArrayAnnotation, ...] | None = None
        docstring: str | None = None
        body: list[Statement] = []
        for part in node.nodes:
            match part.rule:
                case "parameters":
                    parameters = self.parameters(part)
                case "results":
                    returns = self.results(part)
                case "docstring":
                    docstring = self.docstring(part)
                case _:
                    body += self.line(part)
        self.check_body(str(name), body, self.span(name))
        return Function(
            name_of(name), parameters, returns, docstring, tuple(body), decorators, self.span(name)
        )

    def docstring(self, node: Node) -> str:
        """Build `docstring`: strings that stand side by side are one."""
        parts = []
        for word in node.words:
            value = string_of(word)
            if value is None:
                hint = "complete it, or put r in front of the string"
                self.note("the string holds an incomplete escape", hint, self.span(word))
            parts.append(value or "")
        return "".join(parts)

    def number(self, word: Token) -> bool | int | float:
        """Build a literal number."""
        value = number_of(word)
        if value is None:
            problem = f"the number has {len(word)} digits"
            self.note(problem, "write it in the form 1e30", self.span(word))
            return 0
        return value

    def check_body(self, name: str, body: Sequence[Statement], span: Span) -> None:
        """Note a body that does not end with its only return."""
        returns = [statement for statement in body if isinstance(statement, Return)]
        if not returns:
            self.note(f"{name} returns nothing", "end it with: return <expression>", span)
        elif body[-1] is not returns[0]:
            after = body[body.index(returns[0]) + 1]
            hint = "a body is one list of definitions that ends with one return"
            self.note("this statement stands behind the return", hint, after.span)

    def monoid(self, node: Node, decorators: tuple[Decorator, ...]) -> MonoidClass:
        """Build `monoid`."""
        (name,) = node.words
        docstring: str | None = None
        methods: list[Function] = []
        for part in node.nodes:
            if part.rule == "docstring":
                docstring = self.docstring(part)
            else:
                *above, function = part.nodes
                methods.append(self.function(function, tuple(map(self.decorator, above))))
        return MonoidClass(name_of(name), docstring, tuple(methods), decorators, self.span(name))

    # Signatures

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        """Build `parameters`, checked as Python checks them."""
        built: list[Parameter] = []
        star: Token | None = None
        for child in node.children:
            if isinstance(child, Node):
                built.append(self.parameter(child, keyword_only=star is not None))
            elif star is None:
                star = child
            else:
                hint = "one '*' opens the parameters that are given by keyword"
                self.note("'*' appears twice", hint, self.span(child))
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
                problem = f"parameter {name!r} has no default but follows {defaulted!r} with one"
                self.note(problem, "move it forward, or put '*' in front of it", parameter.span)

    def parameter(self, node: Node, *, keyword_only: bool) -> Parameter:
        """Build `parameter`."""
        name, *types = node.words
        annotation = self.annotation(types[0], name) if types else None
        default = self.default(node.nodes[0]) if node.nodes else None
        self.annotations[name_of(name)] = annotation
        if annotation is not None or name not in ("self", "cls"):
            # The numbers of a method's object are names from outside, such as `self.eps`.
            self.names.add(name_of(name))
        return Parameter(name_of(name), annotation, default, keyword_only, self.span(name))

    def annotation(self, word: Token, name: str) -> ArrayAnnotation | ScalarAnnotation:
        """Build the annotation of parameter `name`."""
        span = self.span(word)
        if word.type == "STRING":
            return self.array(word, span)
        if word not in SCALARS:
            self.note(f"{word} does not say which axes {name} has", ANNOTATION_HINT, span)
        return ScalarAnnotation(str(word), span)

    def default(self, node: Node) -> bool | int | float:
        """Build `default`."""
        negative = node.children[0] == "-"
        if not node.nodes:
            number = self.number(node.words[-1])
            return -number if negative else number
        name = self.dotted(node.nodes[0])
        constant = CONSTANTS.get(name.text.rpartition(".")[2])
        if constant is None:
            hint = f"write the number, or drop the parameter and use {name.text} in the kernel"
            self.note(f"the default {name.text} is not a number", hint, name.span)
            return 0
        return -constant if negative else constant

    def array(self, word: str, span: Span) -> ArrayAnnotation:
        """Build an array annotation from its string."""
        prefix, quotes = opening(word)
        inside = Span(span.start + prefix + quotes, span.stop - quotes)
        content = self.text[inside.start : inside.stop]
        annotation, mistakes = parse_annotation(content, inside, self.read)
        self.mistakes += mistakes
        return annotation

    def results(self, node: Node) -> tuple[ArrayAnnotation, ...]:
        """Build `results`."""
        return tuple(self.array(word, self.span(word)) for word in node.words)

    # Statements

    def line(self, node: Node) -> list[Statement]:
        """Build the statements of a `line`."""
        return [self.statement(child) for child in node.nodes]

    def statement(self, node: Node) -> Statement:
        """Build `assign` or `return`."""
        values = tuple(map(self.expression, node.nodes))
        first = self.span(node.words[0])
        if node.rule == "return":
            closing = self.span(node.words[-1]) if len(node.words) > 1 else values[-1].span
            return Return(values, first.to(closing))
        names = [word for word in node.words if word.type == "NAME"]
        targets = tuple(Name(name_of(word), self.span(word)) for word in names)
        self.names.update(target.text for target in targets)
        for place, target in enumerate(targets):
            if target in targets[:place]:
                problem = f"{target.text!r} is assigned twice in one line"
                self.note(problem, "rename one of them", target.span)
        return Assign(targets, values[0], first.to(values[0].span))

    # Expressions

    def expression(self, node: Node) -> Expr:
        """Build any expression."""
        self.depth += 1
        built: Expr = Number(0)
        if self.depth <= MAX_DEPTH:
            built = getattr(self, f"_{node.rule}")(node)
        elif not self.too_deep:
            self.too_deep = True
            problem = f"an expression is nested more than {MAX_DEPTH} levels deep"
            self.note(problem, "give names to parts of it", self.span(_first_word(node)))
        self.depth -= 1
        return built

    def dotted(self, node: Node) -> Name:
        """Build `dotted`."""
        span = self.span(node.words[0]).to(self.span(node.words[-1]))
        name = _dotted(node)
        self.check_attribute(name, span)
        return Name(name, span)

    def _number(self, node: Node) -> Expr:
        (word,) = node.words
        return Number(self.number(word), self.span(word))

    def _name(self, node: Node) -> Expr:
        return self.dotted(node.nodes[0])

    def _parenthesised(self, node: Node) -> Expr:
        inner = self.expression(node.nodes[0])
        opening, closing = node.words
        span = self.span(opening).to(self.span(closing))
        if isinstance(inner, Binary | Compare):
            return dataclasses.replace(inner, parenthesised=True, span=span)
        return dataclasses.replace(inner, span=span)

    def _unary(self, node: Node) -> Expr:
        operand = self.expression(node.nodes[0])
        operator = node.words[0]
        return Unary(str(operator), operand, self.span(operator).to(operand.span))

    def _binary(self, node: Node) -> Expr:
        left, right = map(self.expression, node.nodes)
        return Binary(str(node.words[0]), left, right, span=left.span.to(right.span))

    def _compare(self, node: Node) -> Expr:
        operands = tuple(map(self.expression, node.nodes))
        for operand in operands:
            self.check_beside_comparison(operand)
        span = operands[0].span.to(operands[-1].span)
        return Compare(tuple(map(str, node.words)), operands, span=span)

    def check_beside_comparison(self, operand: Expr) -> None:
        """Note `a < b & c < d`, which Python reads as `a < (b & c) < d`."""
        match operand:
            case Binary(op="&" | "|" | "^" as op, parenthesised=False):
                problem = f"{op!r} binds tighter than the comparison beside it, as in Python"
                hint = f"put the comparisons in parentheses: (a < b) {op} (c < d)"
            case Unary(op="~") if self.text[operand.span.start] == "~":
                problem = "'~' binds tighter than the comparison beside it, as in Python"
                hint = "put the comparison in parentheses: ~(a < b)"
            case _:
                return
        self.note(problem, hint, operand.span)

    def _if_else(self, node: Node) -> Expr:
        then, condition, otherwise = map(self.expression, node.nodes)
        return IfElse(condition, then, otherwise, then.span.to(otherwise.span))

    def _subscript(self, node: Node) -> Expr:
        array, items = node.nodes
        name = self.dotted(array)
        subscripts: list[Expr] = []
        for item in items.nodes:
            if item.rule == "binding":
                hint = "an axis is always taken whole; where(n < 4, x) leaves elements out"
                self.note("an index has no ranges", hint, self.binding(item).span)
            else:
                subscripts.append(self.expression(item))
        return Subscript(name, tuple(subscripts), name.span.to(self.span(node.words[-1])))

    def _call(self, node: Node) -> Expr:
        function, *rest = node.nodes
        name = self.dotted(function)
        axes: list[AxisBinding] = []
        arguments: list[Expr] = []
        keywords: list[Keyword] = []
        for part in rest:
            if part.rule == "items":
                axes += (self.axis(name.text, item) for item in part.nodes)
            else:
                self.arguments(part, arguments, keywords)
        span = name.span.to(self.span(node.words[-1]))
        return Call(name, tuple(axes), tuple(arguments), tuple(keywords), span)

    def binding(self, node: Node) -> AxisBinding:
        """Build `binding`."""
        name, target = node.words
        return AxisBinding(name_of(name), name_of(target), self.span(name).to(self.span(target)))

    def axis(self, function: str, node: Node) -> AxisBinding:
        """Build what stands between a function's name and its arguments."""
        if node.rule == "binding":
            return self.binding(node)
        found = self.expression(node)
        if isinstance(found, Name) and "." not in found.text:
            return AxisBinding(found.text, None, found.span)
        text = self.text[found.span.start : found.span.stop]
        hint = f"name an axis: {function}[n](...)"
        self.note(f"{text!r} is not the name of an axis", hint, found.span)
        return AxisBinding(text, None, found.span)

    def arguments(self, node: Node, arguments: list[Expr], keywords: list[Keyword]) -> None:
        """Build `arguments` into the two lists."""
        for child in node.nodes:
            if child.rule != "keyword":
                argument = self.expression(child)
                if keywords:
                    problem = "a positional argument follows a keyword argument"
                    self.note(problem, "put positional arguments first", argument.span)
                arguments.append(argument)
                continue
            (name,) = child.words
            value = self.expression(child.nodes[0])
            span = self.span(name).to(value.span)
            if any(keyword.name == name for keyword in keywords):
                self.note(f"the argument {str(name)!r} is given twice", "remove one of them", span)
            keywords.append(Keyword(name_of(name), value, span))


def _dotted(node: Node) -> str:
    return ".".join(map(name_of, node.words))


def _constant(value: Node | Token) -> bool | int | float | str | None:
    """Return the value of a decorator's option if it is a literal."""
    if not isinstance(value, Node):
        return string_of(value) if value.type == "STRING" else None
    if value.rule == "number":
        return number_of(value.words[0])
    if value.rule == "unary" and value.nodes[0].rule == "number":
        number = number_of(value.nodes[0].words[0])
        if number is not None:
            return {"-": -number, "+": +number}.get(value.words[0])
    return None


def _first_word(node: Node) -> Token:
    while isinstance(node.children[0], Node):
        node = node.children[0]
    return node.children[0]
