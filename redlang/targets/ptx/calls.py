"""Generated scalar functions: written once into a module, called and applied to every element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from redlang.targets.kinds import SCALARS, Kind, tuple_of
from redlang.targets.ptx.inline import Values, Word, define
from redlang.targets.translate import device_function


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A generated function with its declared types.

    Attributes:
        python: The Python function.
        results: Type codes of its results; it returns a tuple if there are several.
        arguments: Type codes of its arguments.
    """

    python: Callable[..., object]
    results: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def result(self) -> Kind:
        """Return the type of what it returns."""
        return tuple_of(SCALARS[code] for code in self.results)


def function(
    results: str | tuple[str, ...], *arguments: str
) -> Callable[[Callable[..., object]], Word]:
    """Return a decorator that makes a scalar function callable in kernels.

    Args:
        results: Type code of the result, or a tuple of them for a function that returns a tuple.
        *arguments: Type codes of the arguments.
    """

    def decorate(python: Callable[..., object]) -> Word:
        codes = (results,) if isinstance(results, str) else results
        body = Body(python, codes, arguments)

        def generate(builder: ir.IRBuilder, values: Values) -> Values:
            return call(builder, body, values)

        return define(python.__name__, body.result, arguments, generate, body)

    return decorate


def body_of(function: Word) -> Body:
    """Return the body of what `function` made."""
    assert function.body is not None
    return function.body


def call(builder: ir.IRBuilder, body: Body, values: Sequence[ir.Value]) -> ir.Value:
    """Emit a call of a generated function on LLVM values; it is inlined."""
    arguments = [SCALARS[code] for code in body.arguments]
    written = device_function(builder.module, body.python, body.result, arguments)
    return builder.call(written, values)


def results_of(builder: ir.IRBuilder, body: Body, value: ir.Value) -> list[ir.Value]:
    """Return the results of a call one by one."""
    if len(body.results) == 1:
        return [value]
    return [builder.extract_value(value, number) for number in range(len(body.results))]
