"""What can go wrong, one class for each thing that a user can get wrong.

Every error renders as `file:line:column: stage: problem`, the line with a caret, then a hint.
Errors found together are reported together: the first is raised, the others hang below it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from redlang.source import SourceText, Span

logger = logging.getLogger("redlang")

P = ParamSpec("P")
R = TypeVar("R")


class RedlangError(Exception):
    """Base of everything redlang raises on purpose.

    Attributes:
        problem: One sentence that shows the value that was wrong and what was wrong with it.
        hint: What to do about it; may be empty.
        span: Where in the kernel, or None when no place in the text is to blame.
        others: Further mistakes found in the same kernel.
    """

    stage = "redlang"

    def __init__(
        self,
        problem: str,
        *,
        hint: str = "",
        source: SourceText | None = None,
        span: Span | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.source = source
        self.span = span
        self.others: tuple[RedlangError, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by state, since the constructor takes keywords."""
        return (_rebuild, (type(self), self.__dict__.copy()))

    def with_source(self, source: SourceText) -> RedlangError:
        """Return this error placed in `source`, unless it already has a place."""
        if self.source is None:
            self.source = source
        return self

    def render(self) -> str:
        """Return the whole message: place, problem, caret frame and hint."""
        parts = []
        if self.source is not None and self.span is not None:
            line, column = self.source.position(self.span.start)
            parts.append(f"{self.source.file}:{line}:{column}: {self.stage}: {self.problem}")
            parts.append(self.source.frame(self.span))
        else:
            parts.append(f"{self.stage}: {self.problem}")
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def __str__(self) -> str:
        return "\n".join(error.render() for error in (self, *self.others))


def _rebuild(kind: type[RedlangError], state: dict[str, object]) -> RedlangError:
    error = kind(str(state["problem"]))
    error.__dict__.update(state)
    return error


class SourceUnavailableError(RedlangError, OSError):
    """The text of a decorated function cannot be found."""

    stage = "capture"


class KernelSyntaxError(RedlangError, SyntaxError):
    """The text is not a kernel."""

    stage = "syntax"


class UnknownNameError(RedlangError, NameError):
    """A name is neither parameter, axis, local, builtin nor a number from outside."""

    stage = "names"


class AxisError(RedlangError, ValueError):
    """Axes are declared, used or reduced in a way that has no meaning."""

    stage = "axes"


class DTypeError(RedlangError, TypeError):
    """Element types do not fit an operation."""

    stage = "types"


class AbsenceError(RedlangError, ValueError):
    """An element that may be absent is used where a value is needed."""

    stage = "absence"


class ArgumentError(RedlangError, ValueError):
    """The arrays of a call do not fit the signature, or an option has a value it does not take."""

    stage = "call"


class FusionError(RedlangError, ValueError):
    """`fuse="require"` was asked for and a stage cannot share its sweep."""

    stage = "fuse"


class PlanError(RedlangError, ValueError):
    """A plan was asked for that the kernel or the device does not admit."""

    stage = "plan"


class BackendError(RedlangError, RuntimeError):
    """A compiler or device that a call needs is missing or does not work."""

    stage = "backend"


class InternalError(RedlangError, AssertionError):
    """redlang contradicts itself; the message carries the intermediate representation."""

    stage = "internal"


def briefly(error: RedlangError) -> RedlangError:
    """Return an error that is on its way out without the frames of redlang that it came through.

    Its message says what is wrong and where in the kernel; the log at level DEBUG has the frames. A
    contradiction inside redlang keeps them.
    """
    if isinstance(error, InternalError):
        return error
    logger.debug("raised to the caller", exc_info=error)
    return error.with_traceback(None)


def brief(function: Callable[P, R]) -> Callable[P, R]:
    """Let what a function raises reach its caller `briefly`."""

    @functools.wraps(function)
    def outer(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except RedlangError as error:
            raise briefly(error) from error.__cause__

    return outer


def report(errors: Sequence[RedlangError], source: SourceText) -> None:
    """Raise the first of `errors` with the rest attached; do nothing if there are none."""
    if not errors:
        return
    # An error caught on its way may have others below it.
    flat = [each for error in errors for each in (error, *error.others)]
    placed = [error.with_source(source) for error in flat]
    placed.sort(key=lambda error: error.span.start if error.span else 0)
    first, *others = placed
    first.others = tuple(others)
    raise first
