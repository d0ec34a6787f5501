"""Kernels as streams: what `Kernel.fold` makes, and what a fold asks of its kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from redlang.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from redlang.ir.program import Program
    from redlang.pipeline import Machine
    from redlang.runtime.call import Call
    from redlang.runtime.fold import Fold
    from redlang.runtime.stream import Stream


class HasMachine(Protocol):
    """A kernel, as folds see it."""

    __name__: str

    @property
    def machine(self) -> Machine:
        """What stands behind it."""

    def __get__(self, instance: object, owner: type | None = None) -> HasMachine:
        """Return it as a method of `instance`."""


class Streams:
    """What the folds of a kernel ask of it; pickles with the kernel."""

    def __init__(self, kernel: HasMachine) -> None:
        """Serve the folds of `kernel`."""
        self.kernel = kernel

    @property
    def _machine(self) -> Machine:
        return self.kernel.machine

    def examine(self, arguments: Mapping[str, object], axis: str) -> Call:
        """Return what a call with these arguments, a piece along an axis, would run on."""
        return self._machine.caller.examine((), arguments, streamed=axis)

    def stream(self, program: Program, axis: str) -> Stream:
        """Return what a stream of a program, as resolved, runs.

        Raises:
            FusionError: The program has no single sweep over the axis.
        """
        from redlang.runtime.stream import stream

        derived = self._machine.compiler(program).derived
        return stream(derived.program, derived.sweeps, axis)

    def varying(self, axis: str) -> tuple[str, ...]:
        """Return the array parameters that vary with an axis, in order."""
        from redlang.frontend.syntax import ArrayAnnotation

        return tuple(
            p.name
            for p in self._machine.caller.declared.parameters
            if isinstance(p.annotation, ArrayAnnotation)
            and any(spec.name == axis for dim in p.annotation.dims for spec in dim.axes)
        )

    def missing(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Return the parameters that have neither an argument nor a default."""
        declared = self._machine.caller.declared.parameters
        return tuple(p.name for p in declared if p.default is None and p.name not in arguments)

    def check_known(self, names: Iterable[str]) -> None:
        """Raise ArgumentError unless all names are those of parameters."""
        from redlang.frontend.builtins import nearest

        known = [p.name for p in self._machine.caller.declared.parameters]
        for name in names:
            if name not in known:
                match = nearest(name, known)
                raise ArgumentError(
                    f"{self!r} has no parameter {name!r}",
                    hint=f"did you mean {match}?" if match else f"it has {', '.join(known)}",
                )

    def __repr__(self) -> str:
        return self.kernel.__name__


def fold(
    kernel: HasMachine,
    axis: str,
    size: int | None,
    misplaced: Sequence[object],
    constants: Mapping[str, object],
) -> Fold:
    """Return an empty stream; see `Kernel.fold`."""
    from redlang.runtime.arguments import describe
    from redlang.runtime.fold import Fold

    if not isinstance(axis, str):
        raise ArgumentError(
            f"axis is {describe(axis)}, and must be the name of an axis",
            hint=f"the axis stands first: {kernel.__name__}.fold('n')",
        )
    receiver = kernel.machine.caller.receiver
    if receiver is not None:
        if receiver not in constants:
            raise ArgumentError(
                f"{kernel.__name__} is a method, and a fold of it needs its {receiver}",
                hint=f"take it from an instance: instance.{kernel.__name__}.fold({axis!r})",
            )
        kernel = kernel.__get__(constants[receiver])
        constants = {name: value for name, value in constants.items() if name != receiver}
    streams = Streams(kernel)
    # With the element types of the last call, or f32, and whole groups: a kernel that can be no
    # stream says so now.
    with contextlib.suppress(DTypeError):
        streams.stream(_unragged(kernel.machine), axis)
    whole = size is None or (hasattr(type(size), "__index__") and not hasattr(size, "__dlpack__"))
    if misplaced or not whole:
        given = f"size is {describe(size)}, and must be the extent of {axis}"
        if misplaced:
            more = map(describe, misplaced if whole else (size, *misplaced))
            given = f"a fold takes its axis and its size by position, and no {', '.join(more)}"
        known = {*streams.varying(axis), *constants}
        needed = [f"{name}=..." for name in streams.missing(dict.fromkeys(known))]
        raise ArgumentError(
            given,
            hint=f"what does not vary with {axis} is given by name: "
            f"{kernel.__name__}.fold({', '.join((repr(axis), *needed))})",
        )
    return Fold(streams, axis, size, constants)


def _unragged(machine: Machine) -> Program:
    """Return the program for the element types of the last call, and for no ragged dimension."""
    from redlang.frontend.draft import Signature
    from redlang.ir.program import ArrayParam

    latest = machine.caller.latest.program
    params = latest.params if latest is not None else ()
    dtypes = {p.name: p.dtype for p in params if isinstance(p, ArrayParam)}
    return machine.caller.resolve(Signature(dtypes, ragged=frozenset())).program
