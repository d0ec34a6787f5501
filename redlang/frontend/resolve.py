"""Syntax to Program: names, axes, extents, element types and absence.

`resolve` runs once when a kernel is decorated, with f32 for every array whose element type is open,
to report what is wrong with it, and once for each specialisation. It never stops at a mistake: all
of a kernel's mistakes are reported together.
"""

from __future__ import annotations

from redlang.errors import report
from redlang.frontend import syntax
from redlang.frontend.draft import Capture, Draft, Frame, Signature, Used
from redlang.frontend.results import results
from redlang.frontend.scope import Scope
from redlang.frontend.signature import declare_parameters
from redlang.frontend.statements import body, returned_places
from redlang.ir.program import Program
from redlang.source import SourceText
from redlang.values import dataclass

__all__ = ["Capture", "Resolution", "Signature", "Used", "resolve", "resolve_fully"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """A program together with what it takes from outside.

    Attributes:
        captures: Where the value of each captured number is found at a call, in the order of the
            program's captured parameters.
        used: The macros, kernels and monoids that were inlined; the program is stale once one of
            them is found to be another object.
    """

    program: Program
    captures: tuple[Capture, ...]
    used: tuple[Used, ...]


def resolve(
    function: syntax.Function, source: SourceText, signature: Signature, scope: Scope
) -> Program:
    """Return the program that a kernel's text means.

    Args:
        function: The kernel as it was written.
        source: Its text, for messages.
        signature: Element types of its arrays and kinds of its captured numbers.
        scope: What names from outside mean.

    Raises:
        RedlangError: The kernel has mistakes; all that were found hang below the first.
    """
    return resolve_fully(function, source, signature, scope).program


def resolve_fully(
    function: syntax.Function, source: SourceText, signature: Signature, scope: Scope
) -> Resolution:
    """Return the program of a kernel and what it takes from outside; see `resolve`."""
    draft = Draft(function.name, signature, active=[function], body=body)
    if function.returns is not None:
        specs = (spec for a in function.returns for dim in a.dims for spec in dim.axes)
        draft.kept = frozenset(spec.name for spec in specs)
    frame = Frame(draft, function, source, scope)
    declare_parameters(frame)
    values = body(frame)
    whole, places = returned_places(function, len(values))
    returns = results(frame, values, places, whole)
    report(draft.errors, source)
    definitions = tuple(dict.fromkeys(draft.definitions.values()))
    params = (*draft.params.values(), *draft.captured.values())
    program = Program(function.name, params, tuple(draft.axes.values()), definitions, returns)
    return Resolution(program, tuple(draft.captures.values()), tuple(draft.used.values()))
