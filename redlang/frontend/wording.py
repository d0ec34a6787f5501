"""Small matters of English in messages."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 argument` or `2 arguments`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def are(number: int) -> str:
    """Return `is` for one and `are` for any other number."""
    return "is" if number == 1 else "are"


def letters(number: int) -> str:
    """Return `a, b, c` as names for that many values."""
    return ", ".join("abcdefghijklmnopqrstuvwxyz"[:number])


def named(axes: Iterable[str]) -> list[str]:
    """Return the axes that a user gave names to, not those that are called by their extent."""
    return [axis for axis in axes if axis.isidentifier()]
