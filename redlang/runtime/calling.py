"""From a kernel's call to its launcher: the slow half, run once for each new kind of call.

A `Caller` owns a kernel's binder. The first binder knows no outside names: it only binds the
arguments, from which the program can be resolved, and is replaced by one that reads what the
program reads. When a macro or callee turns out to be another object, the same happens again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from redlang.errors import ArgumentError, DTypeError, InternalError, RedlangError
from redlang.frontend.builtins import nearest
from redlang.frontend.resolve import Capture, Resolution, Signature, Used, resolve_fully
from redlang.frontend.scope import Kind, NamesScope, as_number
from redlang.frontend.signature import is_of_kind
from redlang.frontend.syntax import ArrayAnnotation, Parameter
from redlang.frontend.wording import are
from redlang.ir import walk
from redlang.ir.program import Scalar
from redlang.ir.types import DTYPES
from redlang.runtime import binder, foreign
from redlang.runtime.arguments import (
    Argument,
    Declared,
    about,
    describe,
    examine,
    is_scalar,
    where,
)
from redlang.runtime.binder import Hooks, Names, Place, make_binder, ragged_dims, scalar_kind
from redlang.runtime.cache import BUILDING
from redlang.runtime.call import Call, Chosen, Latest
from redlang.runtime.interop import library_of
from redlang.runtime.launcher import Site, make_launcher
from redlang.runtime.memory import AnyArray
from redlang.runtime.results import check_results, listed, named_out, out_labels, overlap
from redlang.values import dataclass

Values: TypeAlias = tuple[object, ...]

Choose: TypeAlias = Callable[[Call, str], Chosen]
"""Finds the backend for a kind of call on a device."""


@dataclass(slots=True, eq=False)
class _Bound:
    """A binder together with what it was made for."""

    captures: tuple[Capture, ...] = ()
    used: tuple[Used, ...] = ()
    resolutions: dict[object, Resolution] = field(default_factory=dict)
    ready: dict[object, Callable[..., AnyArray]] = field(default_factory=dict)
    provisional: bool = True


class Caller:
    """Binds, checks and launches the calls of one kernel."""

    def __init__(
        self,
        declared: Declared,
        scope: NamesScope,
        choose: Choose,
        receiver: str | None = None,
        receiver_names: dict[str, object] | None = None,
    ) -> None:
        """Serve the kernel `declared`, whose outside names `scope` knows."""
        self.declared = declared
        self.scope = scope
        self.choose = choose
        self.receiver = receiver
        self.receiver_names = receiver_names
        self.launcher_texts: list[str] = []
        self.latest = Latest()
        self._bound = _Bound()
        self.call: Callable[..., Any]
        self._collect: Callable[..., Any]
        if any(map(_is_mistaken, declared.parameters)):
            # No argument is to blame for such a parameter: this raises the kernel's mistakes.
            self.resolve()
        self._bind(self._bound)

    def examine(
        self,
        args: Sequence[object],
        keywords: Mapping[str, object],
        *,
        streamed: str | None = None,
    ) -> Call:
        """Return what a call with these arguments would run on.

        Args:
            args: As in a call.
            keywords: As in a call.
            streamed: An axis of which the arrays hold a piece only.

        Raises:
            RedlangError: The arguments do not fit, or the kernel has mistakes.
        """
        with BUILDING:
            values, out, receiver = self._arguments(args, keywords)
            self._set_receiver(receiver)
            if self._bound.provisional:
                look = self._look(self._bound, self._adopted(values), None, streamed)
                self._settle(look)
                values, out, receiver = self._arguments(args, keywords)
            return self._look(self._bound, self._adopted(values), out, streamed)

    def _adopted(self, values: Values) -> Values:
        """Return arguments, and what follows them, with native arrays where a call has them."""
        own = len(self.declared.parameters)
        return (*map(_native, values[:own]), *values[own:])

    def unbound(self, problem: str) -> ArgumentError:
        """Return the error for arguments that Python could not match with parameters."""
        names = [parameter.name for parameter in self.declared.parameters]
        unknown = re.search(r"unexpected keyword argument '(\w+)'", problem)
        named = [parameter.name for parameter in self.declared.parameters if parameter.keyword_only]
        named += [] if "out" in names else ["out"]
        hint = ""
        if unknown:
            match = nearest(unknown[1], [*names, "out"])
            hint = f"did you mean {match}?" if match else f"it takes {', '.join(names)} and out"
        elif named and re.search(r"positional arguments? .*given", problem):
            call = f"{self.declared.syntax.name}(..., {named[0]}=...)"
            hint = f"{' and '.join(named)} {are(len(named))} given by name: {call}"
        return ArgumentError(f"{problem}\n  kernel {self.declared.signature}", hint=hint)

    @property
    def launchers(self) -> int:
        """The kinds of call that have a launcher."""
        return len(self._bound.ready)

    def _arguments(
        self, args: Sequence[object], keywords: Mapping[str, object]
    ) -> tuple[Values, object, object]:
        try:
            collected: tuple[Values, object, object] = self._collect(*args, **keywords)
            return collected
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            problem = str(error)
        raise self.unbound(problem)

    def resolve(self, signature: Signature | None = None, receiver: object = None) -> Resolution:
        """Return the program for a signature, by default with f32 for every open element type.

        A method's receiver is the last one that was seen, where none is given.
        """
        with BUILDING:
            if receiver is not None:
                self._set_receiver(receiver)
            syntax, source = self.declared.syntax, self.declared.source
            return resolve_fully(syntax, source, signature or Signature(), self.scope)

    def _bind(self, bound: _Bound) -> None:
        """Make the binder for what `bound` reads, and the one that only collects arguments."""
        captured = [_place(capture.scope, capture.path) for capture in bound.captures]
        used = [_place(item.scope, item.path) for item in bound.used]
        pairs = [(place, place.read()) for place in used]
        hooks = Hooks(
            prepare=lambda key, *rest: self._prepare(bound, key, *rest),
            renew=self._renew,
            refuse=self._refuse,
            ready=bound.ready,
        )
        collecting = Hooks(prepare=_collected, renew=self._renew_collect, refuse=self._refuse)
        receiver = self.receiver, self.receiver_names
        call, self.binder_text = make_binder(self.declared, captured, pairs, hooks, *receiver)
        collect, _ = make_binder(self.declared, captured, pairs, collecting, *receiver)
        self._bound, self._collect, self.call = bound, collect, call

    def _settle(self, call: Call) -> None:
        """Replace a provisional binder by one that reads what the program reads."""
        resolution = call.resolution
        self._bind(_Bound(resolution.captures, resolution.used, provisional=False))

    def _renew(self, /, *args: object, **keywords: object) -> AnyArray:
        """Call again with a new binder: an outside name means something else now."""
        with BUILDING:
            self._bind(_Bound())
        return self.call(*args, **keywords)

    def _renew_collect(self, /, *args: object, **keywords: object) -> Values:
        with BUILDING:
            self._bind(_Bound())
        collected: Values = self._collect(*args, **keywords)
        return collected

    def _set_receiver(self, receiver: object) -> None:
        if self.receiver_names is not None and self.receiver is not None:
            self.receiver_names[self.receiver] = receiver

    def _prepare(
        self, bound: _Bound, key: object, values: Values, out: object, receiver: object
    ) -> Callable[..., AnyArray]:
        """Return the launcher for calls of this kind."""
        parameters = zip(self.declared.parameters, values, strict=False)
        arrays = [value for parameter, value in parameters if not is_scalar(parameter)]
        if any(map(_is_adopted, arrays)) or any(map(_is_foreign, listed(out))):
            return self._foreign_launcher(receiver)
        with BUILDING:
            if key in bound.ready:
                return bound.ready[key]
            self._set_receiver(receiver)
            call = self._look(bound, values, out)
            if bound.provisional or not _same_names(bound, call.resolution):
                if bound is self._bound:
                    self._settle(call)
                return self._again(receiver)
            try:
                launcher = self._launcher(call)
            except RedlangError as error:
                raise self._complaint(error, call.values) from error.__cause__
            bound.ready[key] = launcher
            return launcher

    def _again(self, receiver: object) -> Callable[..., AnyArray]:
        """Return a function that hands a provisional binder's values to the new one."""
        names = [p.name for p in self.declared.parameters]

        def launch(*values: object) -> AnyArray:
            keywords = dict(zip(names, values, strict=False))
            if len(values) > len(names):
                keywords["out"] = values[-1]
            first = [receiver] if self.receiver is not None else []
            return self.call(*first, **keywords)

        return launch

    def _foreign_launcher(self, receiver: object) -> Callable[..., AnyArray]:
        """Return a function that adopts foreign arrays, calls again, and gives results back."""
        names = [p.name for p in self.declared.parameters]
        arrays = [i for i, p in enumerate(self.declared.parameters) if not is_scalar(p)]
        first = [receiver] if self.receiver is not None else []

        def launch(*values: object) -> AnyArray:
            keywords = {}
            restore = None
            for i, (name, value) in enumerate(zip(names, values, strict=False)):
                try:
                    adopted = foreign.adopt(value) if i in arrays and _is_adopted(value) else None
                except Exception as error:
                    # Whatever the library raises where it has no memory to show: a traced value
                    # of JAX, a device that DLPack cannot name, a lazy array.
                    wrong = about(
                        name,
                        f"cannot be read: {error}",
                        f"{describe(value)} must hold its elements: no tracing, no lazy value",
                    )
                    raise self._complaint(wrong, {name: value}) from None
                if adopted is not None and i == arrays[0]:
                    restore = adopted.restore
                keywords[name] = adopted.array if adopted is not None else value
            extra = values[len(names) + len(self._bound.captures) :]
            if extra:
                native = [_native(x) if _is_foreign(x) else x for x in listed(extra[0])]
                given = tuple(native) if isinstance(extra[0], tuple | list) else native[0]
                self.call(*first, **keywords, out=given)
                return extra[0]
            results = self.call(*first, **keywords)
            if restore is None:
                return results
            return tuple(map(restore, results)) if isinstance(results, tuple) else restore(results)

        return launch

    def _look(
        self, bound: _Bound, values: Values, out: object, streamed: str | None = None
    ) -> Call:
        """Check arguments and resolve the program for them."""
        parameters = self.declared.parameters
        named = {p.name: v for p, v in zip(parameters, values, strict=False)}
        arrays = {p.name: named[p.name] for p in parameters if not is_scalar(p)}
        try:
            arguments, results = examine(self.declared, arrays, named_out(out))
            resolution = self._resolution(bound, arguments, values[len(parameters) :])
            captured = [capture.name for capture in resolution.captures]
            numbers = dict(zip(captured, values[len(parameters) :], strict=False))
            call = Call(resolution, {**named, **numbers}, arguments, results)
            if len(numbers) == len(captured):
                extents = call.extents(streamed)
                check_results(call, extents, isinstance(out, tuple | list), out is not None)
        except (ArgumentError, DTypeError) as error:
            if error.source is not None:
                raise
            raise self._complaint(error, {**arrays, **named_out(out)}) from None
        return call

    def _resolution(
        self, bound: _Bound, arguments: Mapping[str, Argument], numbers: Values
    ) -> Resolution:
        dtypes = {name: a.memory.dtype for name, a in arguments.items()}
        kinds: dict[str, Kind] = {}
        for capture, value in zip(bound.captures, numbers, strict=False):
            number = as_number(value)
            if number is not None:
                kinds[capture.name] = number.kind
            else:
                bound.resolutions.clear()
        ragged = frozenset(
            whole
            for name, dim, inner, whole in ragged_dims(self.declared)
            if binder.is_ragged(arguments[name].value, dim, inner)
        )
        key = (tuple(dtypes.items()), tuple(kinds.items()), ragged)
        if key not in bound.resolutions:
            known = {n: d for n, d in dtypes.items() if not isinstance(d, str)}
            bound.resolutions[key] = self.resolve(Signature(known, kinds, ragged))
        return bound.resolutions[key]

    def _launcher(self, call: Call) -> Callable[..., AnyArray]:
        device = next((a.memory.device for a in call.arguments.values()), "cpu")
        chosen = self.choose(call, device)
        captured = {p.name: type(call.values[p.name]) for p in call.program.params}
        kind = call.kind()

        def misfit(values: Values, out: object) -> None:
            self._misfit(kind, values, out)

        axes = [axis.name for axis in kind.program.axes]

        def guard(
            inputs: Sequence[AnyArray], results: Sequence[AnyArray], extents: tuple[int, ...]
        ) -> None:
            sizes = dict(zip(axes, extents, strict=True))
            error = overlap(kind, chosen, inputs, results, sizes)
            if error is not None:
                given = dict(zip(kind.arguments, inputs, strict=True))
                labels = out_labels(len(results))
                stored = dict(zip(labels, results, strict=True))
                raise self._complaint(error, {**given, **stored})

        sizes = {
            node.name
            for axis in call.program.axes
            if not isinstance(axis.extent, int | None)
            for node in walk.nodes(axis.extent)
            if isinstance(node, Scalar)
        }
        near = {
            name: dtype
            for name, dtype in call.pointed.items()
            if name not in sizes and where(call.values[name]) == device
        }
        site = Site(kind, device, captured, near, misfit, guard, self.latest)
        launcher, text = make_launcher(site, chosen.backend)
        self.launcher_texts.append(text)
        fetched = call.pointed.keys() - near.keys()
        names = [p.name for p in call.program.params]
        return _fetching(launcher, frozenset(map(names.index, fetched))) if fetched else launcher

    def _misfit(self, call: Call, values: Values, out: object) -> None:
        """Raise what is wrong with a call whose launcher found it not to fit."""
        names = [p.name for p in call.program.params]
        given = dict(zip(names, values, strict=True))
        self._look(self._bound, values, out)
        for capture in call.resolution.captures:
            number = given[capture.name]
            if isinstance(number, int) and number.bit_length() > 63:
                problem = f"is {number}, which does not fit i64"
                error = about(capture.name, problem, "define it as a float, which rounds it")
                raise self._complaint(error, given)
        raise InternalError(f"a launcher refuses a call that fits: {self.launcher_texts[-1]}")

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, RedlangError):
            raise self._complaint(error, {}) from None
        raise error

    def _complaint(self, error: RedlangError, values: Mapping[str, object]) -> RedlangError:
        return self.declared.complain(error, values)


def _fetching(launcher: Callable[..., AnyArray], places: frozenset[int]) -> Callable[..., AnyArray]:
    """Return a launcher that waits for some scalars: those on other devices, those of extents."""

    def launch(*values: Any) -> AnyArray:  # noqa: ANN401  # arrays and numbers
        return launcher(*(v.item() if i in places else v for i, v in enumerate(values)))

    return launch


def _is_mistaken(parameter: Parameter) -> bool:
    """Tell whether a parameter's annotation is none, has no such element type, or no default."""
    annotation = parameter.annotation
    if annotation is None or (
        isinstance(annotation, ArrayAnnotation) and annotation.dtype not in (None, *DTYPES)
    ):
        return True
    if parameter.default is None:
        return False
    return not is_scalar(parameter) or not is_of_kind(parameter.default, scalar_kind(parameter))


def _collected(key: object, values: Values, out: object, receiver: object) -> Callable[..., Any]:
    del key
    return lambda *_: (values, out, receiver)


def _place(scope: object, path: str) -> Place:
    """Return where a scope finds a name."""
    assert isinstance(scope, NamesScope)
    root = path.partition(".")[0]
    names: Names = next(names for names in scope.mappings if root in names)
    return Place(names, path)


def _same_names(bound: _Bound, resolution: Resolution) -> bool:
    def places(captures: Sequence[Capture | Used]) -> list[tuple[int, str]]:
        return [(id(item.scope), item.path) for item in captures]

    return places(bound.captures) == places(resolution.captures) and places(bound.used) == places(
        resolution.used
    )


def _is_foreign(value: object) -> bool:
    return library_of(type(value)) is None and hasattr(value, "__dlpack__")


def _is_adopted(value: object) -> bool:
    return _is_foreign(value) or isinstance(value, np.number | np.bool_)


def _native(value: object) -> object:
    adopted = foreign.adopt(value) if _is_adopted(value) else None
    return value if adopted is None else adopted.array
