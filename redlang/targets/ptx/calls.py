"""Generated scalar functions: compiled once, called from kernels and applied to every element.

A `device=True` function cannot be called from a kernel that is compiled without a GPU: typing the
call asks for the current device. So a generated function becomes an intrinsic of declared types,
whose code is compiled into the kernel's module and always inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llvmlite import ir

from redlang.targets.numba_cuda import types
from redlang.targets.ptx.inline import (
    NUMBA_TYPES,
    Context,
    Intrinsic,
    NumbaType,
    Values,
    define,
)

Compiled: TypeAlias = Any
"""Numba's record of a compiled function."""


@dataclass(slots=True)
class Body:
    """A generated function with its declared types.

    Attributes:
        python: The Python function.
        results: Type codes of its results; it returns a tuple if there are several.
        arguments: Type codes of its arguments.
        compiled: Numba's result, after the first use. Numba's own cache is keyed by code alone,
            and two generated modules may hold the same code over different globals.
    """

    python: Callable[..., object]
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    compiled: Compiled = field(default=None, repr=False)

    @property
    def signature(self) -> NumbaType:
        """Return the Numba signature."""
        results = [NUMBA_TYPES[code] for code in self.results]
        returned = results[0] if len(results) == 1 else types.Tuple(results)
        return returned(*(NUMBA_TYPES[code] for code in self.arguments))


def function(
    results: str | tuple[str, ...], *arguments: str
) -> Callable[[Callable[..., object]], Intrinsic]:
    """Return a decorator that makes a scalar function callable in kernels.

    Args:
        results: Type code of the result, or a tuple of them for a function that returns a tuple.
        *arguments: Type codes of the arguments.
    """

    def decorate(python: Callable[..., object]) -> Intrinsic:
        codes = (results,) if isinstance(results, str) else results
        body = Body(python, codes, arguments)

        def generate(
            context: Context, builder: ir.IRBuilder, signature: NumbaType, values: Values
        ) -> Values:
            return call(context, builder, body, values)

        callable_ = define(python.__name__, body.signature.return_type, arguments, generate)
        callable_.body = body
        return callable_

    return decorate


def body_of(function: Intrinsic) -> Body:
    """Return the body of what `function` made."""
    body = function.body
    assert isinstance(body, Body)
    return body


def call(
    context: Context, builder: ir.IRBuilder, body: Body, values: Sequence[ir.Value]
) -> ir.Value:
    """Emit a call of a generated function on LLVM values; it is inlined."""
    if body.compiled is None:
        body.compiled = _compile(context, builder, body)
    context.active_code_library.add_linking_library(body.compiled.library)
    # numba-cuda 0.30 moved the calling convention from the context to the function.
    described = body.compiled.fndesc
    convention = getattr(described, "call_conv", None) or context.call_conv
    # The status says whether Python raised, which generated functions never do.
    _, result = convention.call_internal_no_propagate(builder, described, body.signature, values)
    return result


def results_of(builder: ir.IRBuilder, body: Body, value: ir.Value) -> list[ir.Value]:
    """Return the results of a call one by one."""
    if len(body.results) == 1:
        return [value]
    return [builder.extract_value(value, number) for number in range(len(body.results))]


def _compile(context: Context, builder: ir.IRBuilder, body: Body) -> Compiled:
    from numba.cuda.flags import CUDAFlags  # noqa: PLC0415  its module differs between versions

    flags = CUDAFlags()
    flags.error_model = "numpy"
    compiled = context.compile_subroutine(
        builder, body.python, body.signature, flags=flags, caching=False
    )
    definition = compiled.library.get_function(compiled.fndesc.llvm_func_name)
    definition.attributes.discard("noinline")
    definition.attributes.add("alwaysinline")
    return compiled
