"""Why a line that is no Python either is refused: the word that has no place, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redlang.frontend.lines import PIECE
from redlang.source import Span

if TYPE_CHECKING:
    from redlang.frontend.build import Builder
    from redlang.frontend.reading import Refusal

# fmt: off
LOOKALIKES = {
    "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "−": "-", "–": "-", "—": "-",
    "≤": "<=", "≥": ">=", "≠": "!=", "∧": "&", "∨": "|", "¬": "~", "²": "**2", "³": "**3",
    "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "，": ",", "（": "(", "）": ")",
    "√": "sqrt(x)", "∞": "inf", "∑": "sum[n](x)", "∏": "prod[n](x)", "\u00a0": "a plain space",
}
PAIRS = {")": "(", "]": "[", "}": "{"}
TERMINALS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a string", "_NEWLINE": "a new line",
    "COLON": "':'", "COMMA": "','", "RPAR": "')'", "RSQB": "']'", "LPAR": "'('",
    "EQUAL": "'='", "_DEF": "def", "_CLASS": "class",
    "AT": "'@'", "_INDENT": "an indented line", "LSQB": "'['", "_ELSE": "else",
}
# fmt: on
"""How to say what the grammar expected, where it expected only a few things."""

REPLACEMENTS = str.maketrans(
    {
        sign: "0" if meant == "inf" else " " if meant[0].isalpha() or sign in "²³" else meant[0]
        for sign, meant in LOOKALIKES.items()
    }
    | {"≠": "<"}
)
"""One sign for each, so that the rest of the line can be read where it stands."""

_VALUE_BEGINS = {"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "NONE"}
_LAST_WORD = re.compile(r"""(\w+|\*\*|//|[<>=!]=|->|[^\w\s])\s*\Z""")
_VALUE_ENDS = re.compile(r"""[\w)\]}"']\Z""")
_KEYWORDS_BEFORE_VALUES = {"and", "or", "not", "if", "else", "return", "in", "is"}


def describe(builder: Builder, text: str, start: int, refusal: Refusal) -> None:
    """Note one mistake for the line `text` at `start`, which the grammar refused."""
    bracket = _unpaired(text)
    if bracket is not None:
        place, problem = bracket
        place += start
        builder.note(problem, "every bracket needs its partner", Span(place, place + 1))
        return
    limit = len(builder.text.rstrip())
    start = min(refusal.span.start + builder.offset, limit)
    stop = min(refusal.span.stop + builder.offset, limit)
    problem, hint = _problem(builder.text[:start], builder.text[start:stop], refusal)
    if start == stop:
        start = max(0, len(builder.text[:start].rstrip()) - 1)
        stop = start + 1
    builder.note(problem, hint, Span(start, stop))


def describe_sign(builder: Builder, sign: str, place: int) -> None:
    """Note a sign that only looks like one of the language, at `place` in the text."""
    builder.note(*_character(sign), Span(place, place + 1))


def _unpaired(text: str) -> tuple[int, str] | None:
    """Return the first bracket of `text` that closes the wrong one, or none."""
    opened: list[str] = []
    for piece in PIECE.finditer(text):
        found = piece[0]
        if piece.lastgroup == "open":
            opened.append(found)
        elif piece.lastgroup == "close":
            before = opened.pop() if opened else ""
            if not before:
                return piece.start(), f"{found!r} closes nothing"
            if before != PAIRS[found]:
                return piece.start(), f"{found!r} closes {before!r}"
    return None


def _problem(before: str, found: str, refusal: Refusal) -> tuple[str, str]:
    """Return problem and hint for what stands behind `before`."""
    if refusal.kind == "indentation":
        return "the indentation matches no line above", "indent all lines of a body alike"
    if refusal.kind == "character" and not found.isidentifier():
        return _character(found)
    match = _LAST_WORD.search(before)
    last = match[1] if match else ""
    if not found.strip():
        return _line_end(last, refusal)
    doubled = {"&&": "and", "||": "or", "++": "+ 1", "<>": "!="}.get(last + found)
    if doubled:
        return f"{last + found!r} is no operator", f"write {doubled}"
    if found == "!":
        return "'!' is no operator", "write not x"
    if found == "=":
        return "'=' stands inside an expression", "'==' compares; a definition starts a line: y = x"
    if refusal.kind in _VALUE_BEGINS and _ends_value(last):
        return f"{found!r} follows {last!r}", "an operator or a comma is missing between them"
    if "NAME" in refusal.expected and last and not _ends_value(last):
        problem = f"{found!r} follows {last!r}, where a value is needed"
        return problem, f"remove it, or write a value behind {last!r}"
    return f"{found!r} has no place here", _expected(refusal)


def _ends_value(word: str) -> bool:
    return bool(_VALUE_ENDS.search(word)) and word not in _KEYWORDS_BEFORE_VALUES


def _character(found: str) -> tuple[str, str]:
    if found in LOOKALIKES:
        return f"{found!r} is no sign of the language", f"write {LOOKALIKES[found]}"
    if found in "\"'":
        return "the string is never closed", f"end it with {found}"
    if found == "\\":
        return "'\\' joins lines only at the end of a line", "remove it, or what stands behind it"
    if found in "{}":
        return f"{found!r} is no bracket of the language", "write ( ) or [ ]"
    if found == "!":
        return "'!' is no operator", "write not x, or != to compare"
    return f"{found!r} is no sign of the language", "remove it"


def _line_end(last: str, refusal: Refusal) -> tuple[str, str]:
    if "COLON" in refusal.expected:
        return "the line ends without ':'", "put ':' at its end"
    if last and not _ends_value(last):
        return f"the line ends behind {last!r}, where a value is needed", "complete the line"
    return "the line is not complete", _expected(refusal)


def _expected(refusal: Refusal) -> str:
    """Say what could stand there, if that is short."""
    names = [TERMINALS[name] for name in sorted(refusal.expected) if name in TERMINALS]
    if not names or len(names) < len(refusal.expected) or len(names) > 3:
        return "compare with the examples of the language reference"
    return f"{' or '.join(names)} can stand here"
