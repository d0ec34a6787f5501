"""Why the grammar refuses a text, in the words of its author."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlang.frontend.reading import Read, Refusal, mistake

if TYPE_CHECKING:
    from redlang.errors import KernelSyntaxError


def explain(text: str, refusal: Refusal, read: Read) -> list[KernelSyntaxError]:
    """Return all mistakes of a text that the grammar refuses; at least one."""
    found = text[refusal.span.start : refusal.span.stop]
    return [mistake(f"{found!r} has no place here", "", refusal.span)]
