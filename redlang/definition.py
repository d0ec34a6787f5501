"""What a decorator of redlang keeps of the function or class that it stands on.

The text is captured at once, because files change, and parsed when it is first needed, because that
takes a parser. Text that cannot be found is no error until then either: a frozen application may
import kernels that it never calls.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from redlang import pipeline
from redlang.errors import SourceUnavailableError

if TYPE_CHECKING:
    from redlang.frontend.scope import NamesScope
    from redlang.frontend.syntax import Syntax
    from redlang.source import SourceText


Made = TypeVar("Made", bound="Defined")


class Definition:
    """The text of a kernel, macro or monoid, and what its outside names mean.

    Attributes:
        name: Its name.
        options: A macro's options, for where its decorator's text does not say them.
        receiver_names: Where the receiver's numbers are looked up; empty outside a call.
    """

    def __init__(
        self,
        name: str,
        source: SourceText | SourceUnavailableError,
        function: FunctionType | None = None,
        names: Mapping[str, object] | None = None,
        syntax: Syntax | None = None,
    ) -> None:
        """Keep a text whose outside names are those of `function`, else `names`.

        `syntax` is what the text parses to, where that is known.
        """
        self.name = name
        self.options: dict[str, str] = {}
        self._receiver: str | None = None
        self.receiver_names: dict[str, object] = {}
        self._source = source
        self._function = function
        self._names = {} if names is None else names
        self._syntax = syntax
        self._scope: NamesScope | None = None

    @classmethod
    def of(cls, target: object) -> Definition:
        """Return the definition of a function or class that is written in Python."""
        inner = getattr(target, "__func__", None) or target
        name = getattr(inner, "__name__", type(inner).__name__)
        function = inner if isinstance(inner, FunctionType) else None
        names: Mapping[str, object] = {}
        if isinstance(inner, type):
            names = _names_around(inner)
        source: SourceText | SourceUnavailableError
        try:
            source = pipeline.capture(target)
        except SourceUnavailableError as error:
            source = error
        return cls(name, source, function, names)

    @property
    def source(self) -> SourceText:
        """Return the text.

        Raises:
            SourceUnavailableError: There is none.
        """
        if isinstance(self._source, SourceUnavailableError):
            raise self._source
        return self._source

    @property
    def syntax(self) -> Syntax:
        """Return the parsed text, without the receiver of a method.

        Raises:
            SourceUnavailableError: There is no text.
            KernelSyntaxError: The text is no definition of redlang.
        """
        if self._syntax is None:
            self._syntax, self._receiver = pipeline.parse(self.source, self.options, decorated=True)
        return self._syntax

    @property
    def receiver(self) -> str | None:
        """Name of a method's first parameter, such as `self`; None for all others."""
        assert self.syntax is not None
        return self._receiver

    @property
    def takes_receiver(self) -> bool:
        """Tell whether the first parameter is a method's receiver, as far as Python's code says."""
        if self._function is None:
            return self.receiver is not None
        code = self._function.__code__
        return code.co_argcount > 0 and code.co_varnames[0] in pipeline.RECEIVERS

    @property
    def scope(self) -> NamesScope:
        """Return what outside names mean."""
        if self._scope is None:
            self._scope = pipeline.scope(self._function, self._names, self.receiver_names)
        return self._scope

    @property
    def header(self) -> str:
        """Return the signature as it was written, on one line; only the name without a text."""
        if isinstance(self._source, SourceUnavailableError):
            return self.name
        try:
            (node,) = ast.parse(self._source.text).body
        except (SyntaxError, ValueError):
            return self.name
        if not isinstance(node, ast.FunctionDef):
            return self.name
        arrow = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return f"{node.name}({ast.unparse(node.args)}){arrow}"

    def __getstate__(self) -> dict[str, Any]:
        """Return the text with the outside names that it may use, by value."""
        source = self.source
        return {"name": self.name, "source": source, "names": self._used_names(source)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a text with the names that it took along."""
        names = {name: _unpack(value) for name, value in state["names"].items()}
        self.__init__(state["name"], state["source"], None, names)  # type: ignore[misc]

    def _used_names(self, source: SourceText) -> dict[str, object]:
        """Return the outside names in the text that mean something to a kernel."""
        tree = ast.parse(source.text)
        dotted = {
            node.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        plain = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        found: dict[str, object] = {}
        for name in sorted(plain):
            names = next((m for m in self.scope.mappings if name in m), None)
            if names is None:
                continue
            value = names[name]
            if name in dotted or pipeline.means_something(value):
                found[name] = _pack(value)
        return found


class Defined:
    """Common to kernels, macros and monoids: a name, a text, and how they travel."""

    role: pipeline.Role = "kernel"

    def __init__(self, definition: Definition, like: object = None) -> None:
        self._definition = definition
        self._entity: object = None
        self.__name__ = definition.name
        self.__qualname__ = getattr(like, "__qualname__", definition.name)
        self.__module__ = getattr(like, "__module__", None) or "redlang.text"
        self.__doc__ = getattr(like, "__doc__", None)
        if callable(like) and not isinstance(like, type):
            # Where `inspect`, `help` and `doctest` look for signature and place.
            self.__wrapped__: Callable[..., Any] = like

    @property
    def text(self) -> str:
        """The definition's text.

        Raises:
            SourceUnavailableError: It cannot be found.
        """
        return self._definition.source.text

    def __redlang__(self) -> object:
        """Return what this object means inside a kernel."""
        if self._entity is None:
            self._entity = pipeline.entity(self._definition, self.role)
        return self._entity

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name where it can be imported, else by text.

        What is defined in `__main__` has no name elsewhere, and goes by its text.
        """
        if self.__module__ != "__main__" and _importable(self):
            return self.__qualname__
        state = (self.__module__, self.__qualname__, self.__doc__)
        # In two steps: the names that a text takes along may lead back to the object itself.
        return _blank, (type(self),), (self._definition, self.own_options(), state)

    def __setstate__(
        self, state: tuple[Definition, dict[str, Any], tuple[str, str, str | None]]
    ) -> None:
        """Restore what was pickled by text."""
        definition, options, names = state
        self.__init__(definition, **options)  # type: ignore[misc]
        self.__module__, self.__qualname__, self.__doc__ = names

    def own_options(self) -> dict[str, Any]:
        """Return the options that it was made with."""
        return {}


def _importable(value: Defined) -> bool:
    found: object = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _blank(kind: type[Made]) -> Made:
    return kind.__new__(kind)


def _names_around(target: type) -> Mapping[str, object]:
    """Return the names of the module that a class was defined in, also where none is imported."""
    module = sys.modules.get(target.__module__)
    if module is not None:
        return vars(module)
    functions = [value for value in vars(target).values() if isinstance(value, FunctionType)]
    return functions[0].__globals__ if functions else {}


class _Module:
    """A module in a pickle: by name, since modules have no values."""

    def __init__(self, name: str) -> None:
        self.name = name


def _pack(value: object) -> object:
    return _Module(value.__name__) if isinstance(value, ModuleType) else value


def _unpack(value: object) -> object:
    return importlib.import_module(value.name) if isinstance(value, _Module) else value
