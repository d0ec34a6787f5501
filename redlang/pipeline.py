"""All stages from text to launch, in order: the one module that knows them all.

Each stage is a function from one frozen value to the next. Heavy modules are imported here, when a
stage first runs, so that `import redlang` stays fast.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from redlang.errors import ArgumentError, BackendError, KernelSyntaxError, PlanError

if TYPE_CHECKING:
    from redlang.definition import Definition
    from redlang.frontend.resolve import Resolution
    from redlang.frontend.scope import NamesScope
    from redlang.frontend.syntax import Parameter, Syntax
    from redlang.ir.program import Program
    from redlang.runtime.calling import Call, Caller, Chosen
    from redlang.source import SourceText

Fuse = Literal["auto", "always", "never", "require"]
FUSE: tuple[Fuse, ...] = ("auto", "always", "never", "require")
Role = Literal["kernel", "macro", "monoid"]
STAGES = ("syntax", "program", "fuse", "plan", "loops")

logger = logging.getLogger("redlang.compile")


class History:
    """What has been compiled for one kernel, and the last program that ran.

    Attributes:
        call: The last new kind of call.
    """

    def __init__(self) -> None:
        self.call: Call | None = None
        self._compiled = 0
        self._loaded = 0
        self._events: list[str] = []

    def note(self, what: str, since: float, *, compiled: bool) -> None:
        """Record a compilation, or a load from disk, that began at `since`."""
        self._compiled += compiled
        self._loaded += not compiled
        verb = "compiled" if compiled else "loaded"
        event = f"{verb} in {1e3 * (time.perf_counter() - since):.0f} ms: {what}"
        self._events.append(event)
        logger.info(event)

    def summary(self) -> tuple[int, int, tuple[str, ...]]:
        """Return compilations, loads and their descriptions."""
        return self._compiled, self._loaded, tuple(self._events)


# Text


def capture(target: object) -> SourceText:
    """Return the text of a decorated function or class.

    Raises:
        SourceUnavailableError: It cannot be found.
    """
    from redlang.frontend.capture import capture as captured

    return captured(target)


def parse(source: SourceText, axes: str | None = None) -> tuple[Syntax, str | None]:
    """Return the syntax of a definition, and the name of its receiver if it is a method.

    Args:
        source: The text.
        axes: A macro's axis parameters, where no decorator in the text says them.

    Raises:
        KernelSyntaxError: The text is no definition.
    """
    from redlang.frontend.parser import parse as parsed
    from redlang.frontend.syntax import Decorator, Function

    syntax = parsed(source)
    if not isinstance(syntax, Function):
        return syntax, None
    said = any(name == "axes" for d in syntax.decorators for name, _ in d.options)
    if axes is not None and not said:
        decorator = Decorator("function", (("axes", axes),))
        syntax = dataclasses.replace(syntax, decorators=(*syntax.decorators, decorator))
    first, *rest = syntax.parameters or (None,)
    if first is not None and first.name == "self" and first.annotation is None:
        return dataclasses.replace(syntax, parameters=tuple(rest)), first.name
    return syntax, None


def definition_of_text(text: str, names: Mapping[str, object]) -> tuple[Definition, dict[str, Any]]:
    """Return the definition that a text holds, and the options that its decorators name.

    Raises:
        KernelSyntaxError: It holds no kernel.
    """
    from redlang.definition import Definition
    from redlang.frontend.capture import from_text
    from redlang.frontend.syntax import Function

    source = from_text(text)
    definition = Definition("", source, names=names)
    syntax = definition.syntax
    if not isinstance(syntax, Function):
        raise KernelSyntaxError(
            f"the text defines the class {syntax.name}, not a kernel",
            hint="a monoid is a class under @redlang.monoid in a module",
            source=source,
            span=syntax.span,
        )
    definition.name = syntax.name
    options = {name: value for d in syntax.decorators for name, value in d.options}
    return definition, {name: value for name, value in options.items() if name == "fuse"}


def scope(
    function: FunctionType | None, names: Mapping[str, object], receiver: Mapping[str, object]
) -> NamesScope:
    """Return what outside names mean: a method's receiver, a closure and globals, or a table."""
    from redlang.frontend.scope import NamesScope, scope_of

    if function is None:
        return NamesScope((receiver, names))
    return NamesScope((receiver, *scope_of(function).mappings))


def entity(definition: Definition, role: Role) -> object:
    """Return what a kernel, macro or monoid means inside a kernel."""
    from redlang.frontend.scope import Callee, Macro, UserMonoid
    from redlang.frontend.syntax import Function

    syntax, source = definition.syntax, definition.source
    if role == "monoid":
        if isinstance(syntax, Function):
            raise KernelSyntaxError(
                f"{syntax.name} is no class", hint="@redlang.monoid stands above a class"
            )
        return UserMonoid(syntax, source, definition.scope)
    if not isinstance(syntax, Function):
        raise KernelSyntaxError(
            f"{syntax.name} is a class", hint="a class of DSL functions takes @redlang.monoid"
        )
    make = Macro if role == "macro" else Callee
    return make(syntax, source, definition.scope)


def parameters(definition: Definition) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel or macro."""
    from redlang.frontend.syntax import Function

    syntax = definition.syntax
    return syntax.parameters if isinstance(syntax, Function) else ()


def means_something(value: object) -> bool:
    """Tell whether a kernel can use `value` from outside: a number, macro, kernel or monoid."""
    from redlang.frontend.scope import Foreign, entity

    return not isinstance(entity(value), Foreign)


# Calls


def caller(definition: Definition, fuse: Fuse, history: History) -> Caller:
    """Return what binds and launches the calls of a kernel.

    Raises:
        KernelSyntaxError: The text is no kernel.
    """
    from redlang.frontend.syntax import Function
    from redlang.runtime.arguments import Declared
    from redlang.runtime.calling import Caller

    syntax = definition.syntax
    if not isinstance(syntax, Function):
        raise KernelSyntaxError(
            f"{syntax.name} is a class", hint="a class of DSL functions takes @redlang.monoid"
        )
    declared = Declared(syntax, definition.source, definition.header)

    def choose(call: Call, device: str) -> Chosen:
        history.call = call
        return backend(call, device, fuse, history)

    receiver = definition.receiver
    names = definition.receiver_names if receiver is not None else None
    return Caller(declared, definition.scope, choose, receiver, names)


def backend(call: Call, device: str, fuse: Fuse, history: History) -> Chosen:
    """Return what runs a program on a device.

    Raises:
        BackendError: Nothing runs on the device.
    """
    from redlang.runtime.launcher import Interpreted

    if device != "cpu":
        raise BackendError(
            f"redlang has no backend for arrays on {device} here",
            hint="move them to the CPU",
        )
    del fuse, history, call
    return Interpreted(_interpret)


def _interpret(program: Program, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    from redlang.ir.interpret import interpret

    return interpret(program, arrays, precision="declared")


def reference(
    caller: Caller, args: Sequence[object], keywords: Mapping[str, object], precision: Any
) -> Any:
    """Return the unfused evaluation of a call; see `Kernel.reference`."""
    from redlang.ir.interpret import interpret

    if precision not in ("double", "declared"):
        raise ValueError(f"precision={precision!r}: choose 'double' or 'declared'")
    call = caller.examine(args, keywords)
    arrays = {
        name: argument.library.to_numpy(argument.value) for name, argument in call.arguments.items()
    }
    call.extents()
    results = interpret(
        call.program,
        {**call.scalars, **arrays},
        precision=precision,
        store=precision == "declared",
    )
    return results[0] if len(results) == 1 else results


def resolution(caller: Caller, history: History) -> Resolution:
    """Return the program of the last call, or the one for f32 arrays."""
    if history.call is not None:
        return history.call.resolution
    return caller.resolve()
