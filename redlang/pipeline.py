"""All stages from text to launch, in order: the one module that knows them all.

Each stage is a function from one frozen value to the next. Heavy modules are imported here, when a
stage first runs, so that `import redlang` stays fast.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from redlang.errors import ArgumentError, BackendError, KernelSyntaxError
from redlang.options import Fuse, Options, fault

if TYPE_CHECKING:
    from redlang.algebra.fuse import Fusion
    from redlang.frontend.scope import NamesScope
    from redlang.frontend.syntax import Function, Parameter, Syntax
    from redlang.ir.program import Program
    from redlang.runtime.call import Call, Chosen
    from redlang.runtime.calling import Caller
    from redlang.runtime.compiler import Compiler
    from redlang.runtime.cuda_compiler import CudaCompiler
    from redlang.runtime.cuda_finder import CudaFinder
    from redlang.runtime.methods import MethodCaller
    from redlang.schedule.device import Device
    from redlang.source import SourceText

RECEIVERS = ("self", "cls")
"""Names of a method's first parameter, which stands for an object and is no array."""

Role = Literal["kernel", "macro", "monoid"]


# Text


def capture(target: object) -> SourceText:
    """Return the text of a decorated function or class.

    Raises:
        SourceUnavailableError: It cannot be found.
    """
    from redlang.frontend.capture import capture as captured

    return captured(target)


def parse(
    source: SourceText, options: Mapping[str, str] | None = None, *, decorated: bool = False
) -> tuple[Syntax, str | None]:
    """Return the syntax of a definition, and the name of its receiver if it is a method.

    Args:
        source: The text.
        options: A macro's options, for where no decorator in the text says them.
        decorated: Whether Python has run the decorators.

    Raises:
        KernelSyntaxError: The text is no definition.
    """
    from redlang.frontend.syntax import Decorator, Function

    syntax = _parsed(source, decorated)
    if not isinstance(syntax, Function):
        return syntax, None
    said = {name for decorator in syntax.decorators for name, _ in decorator.options}
    unsaid = tuple(pair for pair in (options or {}).items() if pair[0] not in said)
    if unsaid:
        decorator = Decorator("function", unsaid)
        syntax = dataclasses.replace(syntax, decorators=(*syntax.decorators, decorator))
    first, *rest = syntax.parameters or (None,)
    if first is not None and first.name in RECEIVERS and first.annotation is None:
        return dataclasses.replace(syntax, parameters=tuple(rest)), first.name
    return syntax, None


def _parsed(source: SourceText, decorated: bool) -> Syntax:
    """Return what a text says, from disk or parsed; spans count from the text's beginning."""
    from redlang.frontend.syntax import Function, MonoidClass
    from redlang.runtime.cache import digest, disk, keep, unpickled, versions

    store = disk()
    key = digest("syntax", source.text, str(decorated), *versions())
    kept = unpickled(store, key, Function, MonoidClass)
    if isinstance(kept, Function | MonoidClass):
        return kept
    from redlang.frontend.parser import parse as parsed
    from redlang.frontend.parser import warm

    warm(store)
    syntax = parsed(source, decorated=decorated)
    keep(store, key, syntax)
    return syntax


def read_text(text: str) -> tuple[SourceText, Function, dict[str, Any]]:
    """Return the source of a kernel that is handed over as text, its syntax and its options.

    Raises:
        KernelSyntaxError: It holds no kernel.
    """
    from redlang.frontend.capture import from_text
    from redlang.frontend.syntax import Function

    source = from_text(text)
    syntax, _ = parse(source)
    if not isinstance(syntax, Function):
        raise KernelSyntaxError(
            f"the text defines the class {syntax.name}, not a kernel",
            hint="a monoid is a class under @redlang.monoid in a module",
            source=source,
            span=syntax.span,
        )
    for decorator in syntax.decorators:
        if decorator.computed:
            raise KernelSyntaxError(
                f"the option {decorator.computed[0]} of @{decorator.name} is no literal",
                hint="no Python runs in a text: write the value itself",
                source=source,
                span=decorator.span,
            )
    return source, syntax, _options(syntax, source)


def _options(syntax: Function, source: SourceText) -> dict[str, Any]:
    """Return the options in a text's own decorators.

    Raises:
        KernelSyntaxError: One is unknown or has a value that it does not take.
    """
    found: dict[str, Any] = {}
    for decorator in syntax.decorators:
        for name, value in decorator.options if decorator.name.endswith("kernel") else ():
            found[name] = value
            problem = fault(name, value)
            if problem:
                raise KernelSyntaxError(problem, source=source, span=decorator.span)
    return found


def scope(
    function: FunctionType | None, names: Mapping[str, object], receiver: Mapping[str, object]
) -> NamesScope:
    """Return what outside names mean: a method's receiver, a closure and globals, or a table."""
    from redlang.frontend.scope import NamesScope, scope_of

    if function is None:
        return NamesScope((receiver, names))
    return NamesScope((receiver, *scope_of(function).mappings))


class Text(Protocol):
    """What the pipeline reads of a `redlang.definition.Definition`."""

    receiver_names: dict[str, object]

    @property
    def source(self) -> SourceText:
        """The text."""

    @property
    def syntax(self) -> Syntax:
        """The parsed text."""

    @property
    def scope(self) -> NamesScope:
        """What outside names mean."""

    @property
    def header(self) -> str:
        """The signature as it was written."""

    @property
    def receiver(self) -> str | None:
        """Name of a method's first parameter."""


def entity(definition: Text, role: Role) -> object:
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


def method_entity(name: str) -> object:
    """Return what a kernel that is bound to an object means inside a kernel."""
    from redlang.frontend.scope import Foreign

    hint = f"write {name} outside the class, and what it reads of its object as parameters"
    return Foreign("a method of an object", callable=True, hint=hint)


def parameters(definition: Text) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel or macro."""
    from redlang.frontend.syntax import Function

    syntax = definition.syntax
    return syntax.parameters if isinstance(syntax, Function) else ()


def means_something(value: object) -> bool:
    """Tell whether a kernel can use `value` from outside: a number, macro, kernel or monoid."""
    from redlang.frontend.scope import Foreign, entity

    return not isinstance(entity(value), Foreign)


# Calls


class Machine:
    """What stands behind a kernel once it has been used.

    Attributes:
        caller: Binds and launches calls.
        options: The kernel's.
        history: What has been compiled.
    """

    def __init__(self, definition: Text, options: Options) -> None:
        """Set up the kernel of `definition`.

        Raises:
            KernelSyntaxError: The text is no kernel.
        """
        from redlang.frontend.syntax import Function
        from redlang.runtime.arguments import Declared
        from redlang.runtime.calling import Caller
        from redlang.runtime.compiler import History
        from redlang.runtime.environment import check_environment

        check_environment()
        syntax = definition.syntax
        if not isinstance(syntax, Function):
            raise KernelSyntaxError(
                f"{syntax.name} is a class", hint="a class of DSL functions takes @redlang.monoid"
            )
        self.options = options
        self.history = History()
        self._cuda_finders: dict[tuple[Program, Device], CudaFinder] = {}
        names = definition.receiver_names if definition.receiver is not None else None
        self.caller: Caller | MethodCaller = Caller(
            Declared(syntax, definition.source, definition.header),
            definition.scope,
            self.backend,
            definition.receiver,
            names,
        )

    def bound(self, instance: object) -> Machine:
        """Return what stands behind a method of `instance`: the same, and its receiver is known."""
        from redlang.runtime.calling import Caller
        from redlang.runtime.methods import MethodCaller

        assert isinstance(self.caller, Caller)
        made = copy.copy(self)
        made.caller = MethodCaller(self.caller, instance)
        return made

    def backend(self, call: Call, device: str) -> Chosen:
        """Return what runs a kind of call on a device.

        Raises:
            BackendError: Nothing runs on the device.
        """
        from redlang.runtime.compiled import Compiled

        if device == "cpu":
            compiler = self.compiler(call.program)
            chosen: Chosen = Compiled(compiler.find, compiler if self.options.tune else None)
        elif device.startswith("cuda"):
            chosen = self._on_gpu(call.program, int(device.partition(":")[2] or 0))
        else:
            raise BackendError(
                f"redlang has no backend for arrays on {device} here",
                hint="move them to the CPU",
            )
        return chosen

    def _on_gpu(self, program: Program, number: int) -> Chosen:
        from redlang.runtime.cuda_compiled import CudaCompiled
        from redlang.runtime.driver import require_driver
        from redlang.runtime.probe import probe

        driver = require_driver()
        device = probe(number)
        assert device is not None, "an array lives on it"
        return CudaCompiled(self.cuda_finder(program, device), driver, number)

    def cuda_finder(self, program: Program, device: Device) -> CudaFinder:
        """Return what finds machine code of a program, as resolved, for a kind of GPU."""
        from redlang.runtime.cuda_finder import CudaFinder

        key = (program, device)
        if key not in self._cuda_finders:
            self._cuda_finders[key] = CudaFinder(self.compiler(program), device)
        return self._cuda_finders[key]

    def cuda_compiler(self, program: Program, device: Device) -> CudaCompiler:
        """Return what makes machine code of a program, as resolved, for a kind of GPU."""
        return self.cuda_finder(program, device).compiler

    def compiler(self, program: Program) -> Compiler:
        """Return what makes machine code of a program, as resolved."""
        from redlang.ir.normalise import normalise
        from redlang.runtime.compiler import Compiler

        return Compiler(normalise(program), self.options, self.history, prove)

    def use(self, program: Program, compiler: CudaCompiler) -> None:
        """Let a compiler of one's own serve a program on its kind of GPU."""
        self.cuda_finder(program, compiler.device).compiler = compiler

    @property
    def program(self) -> Program:
        """The program of the last call, as resolved, or the one for f32 arrays."""
        return self.caller.latest.program or self.caller.resolve().program


def prove(program: Program, fuse: Fuse) -> Fusion:
    """Return the sweeps of a normalised program, with their proofs.

    Raises:
        FusionError: `fuse` is `require` and a stage needs a sweep of its own.
    """
    from redlang.algebra.fuse import fuse as fused

    return fused(program, mode=fuse)


def reference(
    machine: Machine,
    args: Sequence[object],
    keywords: Mapping[str, object],
    precision: Literal["double", "declared"],
) -> object:
    """Return the unfused evaluation of a call; see `Kernel.reference`."""
    from redlang.ir.interpret import interpret

    if precision not in ("double", "declared"):
        raise ArgumentError(f"precision={precision!r}: choose 'double' or 'declared'")
    program, values = operands(machine, args, keywords)
    results = interpret(program, values, precision=precision, store=precision == "declared")
    return results[0] if len(results) == 1 else results


def operands(
    machine: Machine, args: Sequence[object], keywords: Mapping[str, object]
) -> tuple[Program, dict[str, Any]]:
    """Return the program of a call, as resolved, and the NumPy arrays and numbers it is for."""
    call = machine.caller.examine(args, keywords)
    arrays = {
        name: argument.library.to_numpy(argument.value) for name, argument in call.arguments.items()
    }
    return call.program, {**call.scalars, **arrays}
