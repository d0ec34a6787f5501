"""What single words of a kernel's text stand for: names, numbers and strings."""

from __future__ import annotations

import ast
import re
import unicodedata

MAX_DIGITS = 3000
"""Python itself refuses to convert decimal integers of more than 4300 digits."""

TRIPLE = ('"""', "'''")

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset("\n\\'\"abfnrtvxNuU01234567")


def name_of(word: str) -> str:
    """Return a name as Python compares names: in normal form NFKC."""
    return str(unicodedata.normalize("NFKC", word))


def number_of(word: str) -> bool | int | float | None:
    """Return the value of a literal number; None if it has too many digits to be meant."""
    if len(word) > MAX_DIGITS:
        return None
    value: bool | int | float = ast.literal_eval(word)
    return value


def string_of(word: str) -> str | None:
    r"""Return the value of a literal string; None where an escape such as `\x1` is incomplete."""
    prefix, _ = opening(word)
    if "r" not in word[:prefix].lower():
        # As Python does, but without its warning: a backslash that escapes nothing is one.
        word = _ESCAPE.sub(lambda m: m[0] if m[1] in _KNOWN_ESCAPES else f"\\{m[0]}", word)
    try:
        return str(ast.literal_eval(word))
    except (SyntaxError, ValueError):
        return None


def opening(word: str) -> tuple[int, int]:
    """Return the lengths of a string's prefix and of its opening quotes."""
    prefix = len(word) - len(word.lstrip("rRuU"))
    triple = len(word) >= prefix + 6 and word[prefix : prefix + 3] in TRIPLE
    return prefix, 3 if triple else 1
