"""From a decorated function or class to its text.

Python keeps no text, only a file name and a line number; `linecache` turns these into lines for
files, notebook cells, doctests, the prompt of Python 3.13, and for generated code that registers
itself there. The end of the definition is found by its indentation.
"""

from __future__ import annotations

import ast
import linecache
import re
from types import CodeType, FunctionType

from redlang.errors import SourceUnavailableError
from redlang.frontend.lines import logical_lines
from redlang.frontend.pythons import python_tree
from redlang.source import SourceText, Span

NO_SOURCE_HINT = (
    "put the definition into a file or a notebook cell, hand its text to redlang.compile(text), "
    "or register generated code in linecache.cache"
)


def capture(function: object) -> SourceText:
    """Return the text of a function or class, from its first decorator to its last line.

    Wrappers that carry `__wrapped__`, static methods and class methods are looked through.

    Raises:
        SourceUnavailableError: There is no text, or it is no longer that of `function`.
    """
    definition = _unwrap(function)
    if isinstance(definition, type):
        return _capture_class(definition)
    if not isinstance(definition, FunctionType):
        raise SourceUnavailableError(
            f"{function!r} is not a function that is written in Python", hint=NO_SOURCE_HINT
        )
    code = definition.__code__
    if code.co_name == "<lambda>":
        raise _lambda(code, definition.__globals__)
    lines = _file_lines(code, definition.__globals__)
    first = code.co_firstlineno
    text = "".join(lines[first - 1 :])
    stop = _definition_end(text, rf"(async\s+)?def\s+{re.escape(code.co_name)}\b")
    block = text[:stop]
    if not block or first + block.count("\n") < _last_line(code):
        raise _changed(code)
    return _source_text(block, code.co_filename, first)


def from_text(text: str, file: str = "<string>", first_line: int = 1) -> SourceText:
    """Return the source for a definition handed over as text, indented or not."""
    unified = text.replace("\r\n", "\n")
    content = unified.lstrip("\n")
    while content and not content.split("\n", 1)[0].strip() and "\n" in content:
        content = content.split("\n", 1)[1]
    skipped = unified[: len(unified) - len(content)].count("\n")
    return _source_text(content.rstrip(), file, first_line + skipped)


def _unwrap(function: object) -> object:
    while True:
        inner = getattr(function, "__func__", None) or getattr(function, "__wrapped__", None)
        if inner is None or isinstance(function, type):
            return function
        function = inner


def _file_lines(code: CodeType, scope: dict[str, object]) -> list[str]:
    file = code.co_filename
    if not file.startswith("<"):
        linecache.checkcache(file)
    lines = linecache.getlines(file, scope)
    if not lines:
        # The prompt of Python 3.13 files its lines under the code object.
        from_code = getattr(linecache, "_getlines_from_code", None)
        lines = from_code(code) if from_code else []
    if not lines:
        raise SourceUnavailableError(
            f"the text of {code.co_name!r} from {file!r} cannot be found", hint=NO_SOURCE_HINT
        )
    return lines


def _lambda(code: CodeType, scope: dict[str, object]) -> SourceUnavailableError:
    line = linecache.getline(code.co_filename, code.co_firstlineno, scope).rstrip()
    text = line.lstrip()
    indent = len(line) - len(text)
    return SourceUnavailableError(
        "a lambda cannot be a kernel",
        hint="write it as a function with def and return",
        source=SourceText(text, code.co_filename, code.co_firstlineno, indent) if text else None,
        span=Span(0, len(text)),
    )


def _last_line(code: CodeType) -> int:
    return max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)


def _changed(code: CodeType) -> SourceUnavailableError:
    problem = f"{code.co_filename!r} line {code.co_firstlineno} no longer defines {code.co_name!r}"
    return SourceUnavailableError(
        problem, hint="the file has changed since it was imported; import it again"
    )


def _definition_end(text: str, header: str) -> int:
    """Return where the definition ends that `text` begins with, or 0 if it begins with none."""
    block = None
    stop = 0
    for line in logical_lines(text):
        if stop == 0 and "\n" in text[: line.start]:
            return 0
        if block is None:
            if re.match(header, text[line.start :]):
                block = line.indent
            elif text[line.start] != "@":
                return 0
        elif line.indent <= block:
            break
        stop = line.stop
    end = text.find("\n", stop)
    if block is None:
        return 0
    return len(text) if end < 0 else end


def _source_text(block: str, file: str, first_line: int) -> SourceText:
    """Dedent `block` by what all its lines have in common, so that columns stay exact."""
    lines = block.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:] for line in lines)
    return SourceText(text, file, first_line, indent)


def _capture_class(definition: type) -> SourceText:
    functions = [_unwrap(value) for value in vars(definition).values()]
    prefix = f"{definition.__qualname__}."
    methods = [
        function
        for function in functions
        if isinstance(function, FunctionType) and function.__code__.co_qualname.startswith(prefix)
    ]
    if not methods:
        raise SourceUnavailableError(
            f"class {definition.__qualname__!r} has no function of its own",
            hint="a monoid is a class with the functions init, lift, combine and finish",
        )
    first = min(methods, key=lambda function: function.__code__.co_firstlineno).__code__
    lines = _file_lines(first, methods[0].__globals__)
    node = _find_class("".join(lines), definition.__name__, first.co_firstlineno)
    if node is None:
        raise _changed(first)
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    block = "".join(lines[start - 1 : node.end_lineno])
    return _source_text(block.rstrip("\n"), first.co_filename, start)


def _find_class(text: str, name: str, line: int) -> ast.ClassDef | None:
    """Return the innermost class of that name around a line."""
    tree = python_tree(text)
    if tree is None:
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.name == name
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)
