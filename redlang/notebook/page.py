"""An explanation as HTML: headings, verdicts in colour, formulas typeset, the plan in pictures.

Works on the sections' text, which is the one thing that is promised to a reader; what is not
recognised is shown as it stands. Colours keep their contrast in light and dark themes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from redlang.explanation import Explanation
from redlang.notebook.formulas import to_latex
from redlang.notebook.picture import passes, roofline

TITLES = {
    "syntax": "As written",
    "program": "What is computed",
    "fuse": "What shares a sweep, and why",
    "plan": "How it runs",
    "loops": "Loops",
}
COLOURS = {"fused": "#1a7f37", "refuted": "#b35900", "undecided": "#8250df"}
FORMULAS = ("state", "moves by", "finish", "identity")
VERDICT = re.compile(r"^(?P<stage>\S+): (?P<verdict>fused|refuted|undecided)(?P<rest>.*)$")
DETAIL = re.compile(r"^  (?P<name>[a-z ]{9}|\s{9}) (?P<text>.*)$")

STYLE = """<style>
.redlang-page h4 {margin: 0.8em 0 0.3em}
.redlang-page pre {margin: 0; white-space: pre-wrap}
.redlang-page .verdict {border-left: 4px solid; padding: 0 0 0 0.7em; margin: 0.5em 0}
.redlang-page .verdict b {color: inherit}
.redlang-page td {text-align: left; vertical-align: top; padding: 0 0.8em 0 0; border: 0}
</style>"""


def page(explanation: str) -> str:
    """Return an explanation as HTML."""
    sections = explanation.sections if isinstance(explanation, Explanation) else ()
    if not sections:
        return f"<pre>{html.escape(explanation)}</pre>"
    parts = [STYLE, "<div class='redlang-page'>"]
    for name, text in sections:
        parts.append(f"<h4>{html.escape(TITLES.get(name, name))}</h4>")
        parts += _section(name, text)
    return "\n".join([*parts, "</div>"])


def _section(name: str, text: str) -> Iterator[str]:
    if name == "fuse":
        yield from _verdicts(text)
        return
    if name == "plan":
        yield from (f"<div>{drawn}</div>" for drawn in (passes(text), roofline(text)) if drawn)
    yield f"<pre>{html.escape(text)}</pre>"


def _verdicts(text: str) -> Iterator[str]:
    open_block, name = False, ""
    for line in text.splitlines():
        verdict, detail = VERDICT.match(line), DETAIL.match(line)
        if verdict:
            if open_block:
                yield "</table></div>"
            open_block, name = True, ""
            colour = COLOURS[verdict["verdict"]]
            yield f"<div class='verdict' style='border-color: {colour}'>"
            yield f"<code>{html.escape(verdict['stage'])}</code> "
            yield f"<b style='color: {colour}'>{verdict['verdict']}</b>"
            yield f"{html.escape(verdict['rest'])}<table>"
        elif detail and open_block:
            label = detail["name"].strip()
            name = label or name
            yield f"<tr><td>{label}</td><td>{_detail(name, detail['text'])}</td></tr>"
        else:
            if open_block:
                yield "</table></div>"
                open_block = False
            if line.strip():
                yield f"<div>{html.escape(line)}</div>"
    if open_block:
        yield "</table></div>"


def _detail(name: str, text: str) -> str:
    latex = to_latex(text) if name in FORMULAS else None
    return f"${html.escape(latex)}$" if latex else html.escape(text)
