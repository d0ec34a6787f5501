"""Kernels as text to programs, and to the mistakes found in them."""

import pytest

from redlang.errors import RedlangError
from redlang.frontend.parser import parse
from redlang.frontend.resolve import Signature, resolve_fully
from redlang.frontend.scope import Callee, Entity, Macro, NamesScope, UserMonoid
from redlang.frontend.syntax import Function, MonoidClass
from redlang.ir.normalise import normalise
from redlang.ir.printing import to_text
from redlang.ir.types import DTYPES
from redlang.ir.verify import verify
from redlang.source import SourceText


class Outside:
    """A macro, kernel or monoid that kernels can name, from its text; `names` are its own."""

    def __init__(self, text, file="other.py", **names):
        self.source = SourceText(text.strip("\n") + "\n", file)
        self.names: dict[str, object] = names
        self.entity = self.entity_of(parse(self.source))

    def entity_of(self, syntax) -> Entity:
        """Return what a definition means to the kernels that name it."""
        scope = NamesScope((self.names,))
        if isinstance(syntax, MonoidClass):
            return UserMonoid(syntax, self.source, scope)
        kernel = any("kernel" in decorator.name for decorator in syntax.decorators)
        return (Callee if kernel else Macro)(syntax, self.source, scope)

    def __redlang__(self):
        return self.entity


def resolution(text, names=None, *, dtypes=None, kinds=None, ragged=None):
    """Return what `resolve_fully` makes of a kernel's text; the program is verified."""
    source = SourceText(text.strip("\n") + "\n", "k.py")
    storage = {name: DTYPES[dtype] for name, dtype in (dtypes or {}).items()}
    signature = Signature(storage, kinds or {}, ragged)
    syntax = parse(source)
    assert isinstance(syntax, Function)
    resolved = resolve_fully(syntax, source, signature, NamesScope((names or {},)))
    verify(resolved.program)
    verify(normalise(resolved.program), "normalised")
    return resolved


def program(text, names=None, **options):
    """Return the program of a kernel's text."""
    return resolution(text, names, **options).program


def body(statements, parameters='x: "m n"', names=None, **options):
    """Return the definitions and results, as text, of a kernel with these statements."""
    lines = "".join(f"    {line}\n" for line in statements.split("\n"))
    text = to_text(program(f"def f({parameters}):\n{lines}", names, **options))
    kept = [line.strip() for line in text.splitlines()]
    heads = ("program", "param", "axes")
    return [line for line in kept if not line.startswith(heads)]


def value(expression, parameters='x: "m n"', names=None, **options):
    """Return the one result, as text, of a kernel that returns this expression."""
    *_, result = body(f"return {expression}", parameters, names, **options)
    return result.removeprefix("return ")


def mistakes(text, names=None, **options):
    """Return the mistakes of a kernel's text: line, column, problem and hint of each."""
    with pytest.raises(RedlangError) as caught:
        program(text, names, **options)
    found = []
    for error in (caught.value, *caught.value.others):
        assert error.source is not None
        assert error.span is not None
        line, column = error.source.position(error.span.start)
        found.append((line, column, error.problem, error.hint))
    return found


def mistake(statements, parameters='x: "m n"', names=None, **options):
    """Return problem and hint of the only mistake in a kernel with these statements."""
    lines = "".join(f"    {line}\n" for line in statements.split("\n"))
    ((_, _, problem, hint),) = mistakes(f"def f({parameters}):\n{lines}", names, **options)
    return problem, hint
