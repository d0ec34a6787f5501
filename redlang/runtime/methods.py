"""The caller of a kernel that is a method, together with the object that it is a method of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redlang.errors import ArgumentError
from redlang.frontend.resolve import Resolution, Signature
from redlang.runtime.arguments import Declared
from redlang.runtime.call import Call, Latest
from redlang.runtime.calling import Caller


class MethodCaller:
    """Does what a kernel's caller does, with the receiver in front of the arguments.

    What has been compiled is the caller's, and the same for all instances.
    """

    receiver: str | None = None
    """No name: it is given already."""

    def __init__(self, caller: Caller, instance: object) -> None:
        """Serve a method of `instance`, whose calls `caller` knows."""
        self._caller = caller
        self._instance = instance

    @property
    def declared(self) -> Declared:
        """The signature that calls are checked against."""
        return self._caller.declared

    @property
    def latest(self) -> Latest:
        """The last call, of whichever instance."""
        return self._caller.latest

    @property
    def launchers(self) -> int:
        """The kinds of call that have a launcher."""
        return self._caller.launchers

    def call(self, /, *args: object, **keywords: object) -> Any:  # noqa: ANN401  # as a kernel's
        """Run the kernel."""
        return self._caller.call(self._instance, *args, **keywords)

    def examine(
        self,
        args: Sequence[object],
        keywords: Mapping[str, object],
        *,
        streamed: str | None = None,
    ) -> Call:
        """Return what a call with these arguments would run on; see `Caller.examine`."""
        return self._caller.examine((self._instance, *args), keywords, streamed=streamed)

    def unbound(self, problem: str) -> ArgumentError:
        """Return the error for arguments that Python could not match with parameters."""
        return self._caller.unbound(problem)

    def resolve(self, signature: Signature | None = None) -> Resolution:
        """Return the program for a signature and the receiver's numbers."""
        return self._caller.resolve(signature, self._instance)
