"""What single words of a kernel's text stand for: names, numbers and strings.

`ast.literal_eval` would do for the last two, but it fails at random when several threads use it in
CPython 3.11 (python/cpython#106905), and it warns of escapes that Python has warned of already.
"""

from __future__ import annotations

import re
import unicodedata

MAX_DIGITS = 3000
"""Python itself refuses to convert decimal integers of more than 4300 digits."""

TRIPLE = ('"""', "'''")

_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})|N\{(?P<name>[^}]*)\}|(?P<other>.))",
    re.DOTALL,
)
_CONTROLS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)) | {"\n": ""}


def name_of(word: str) -> str:
    """Return a name as Python compares names: in normal form NFKC."""
    return str(unicodedata.normalize("NFKC", word))


def number_of(word: str) -> bool | int | float | None:
    """Return the value of a literal number; None if it has too many digits to be meant."""
    if word in ("True", "False"):
        return word == "True"
    if len(word) > MAX_DIGITS:
        return None
    if word.isdecimal() or word[1:2] in tuple("xXoObB"):
        return int(word, 0)
    digits = word.replace("_", "")
    return int(digits) if digits.isdecimal() else float(digits)


def string_of(word: str) -> str | None:
    r"""Return the value of a literal string; None where an escape such as `\x1` is incomplete."""
    prefix, quotes = opening(word)
    inside = word[prefix + quotes : -quotes].replace("\r\n", "\n")
    if "\\" not in inside or "r" in word[:prefix].lower():
        return inside
    try:
        return _ESCAPE.sub(_escaped, inside)
    except (KeyError, ValueError):
        return None


def _escaped(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    value = match[kind]
    match kind:
        case "octal":
            return chr(int(value, 8))
        case "name":
            return unicodedata.lookup(value)
        case "x" | "u" | "U":
            return chr(int(value, 16))
        case _ if value in "xuUN":
            raise ValueError(value)
        case _ if value in "\\'\"":
            return value
        case _:
            # A backslash in front of anything else stands for itself.
            return _CONTROLS.get(value, f"\\{value}")


def opening(word: str) -> tuple[int, int]:
    """Return the lengths of a string's prefix and of its opening quotes."""
    prefix = len(word) - len(word.lstrip("rRuU"))
    triple = len(word) >= prefix + 6 and word[prefix : prefix + 3] in TRIPLE
    return prefix, 3 if triple else 1
