"""Kernels of one call that overlap at their ends: the next is on its way while one still runs.

A kernel lets its follower begin as soon as all of its own blocks have; the follower's blocks come
to SMs as there is room, and wait with their first instruction until what ran before is done and
seen. Only the way to the SMs is saved, some microseconds, and nothing is read or written early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from redlang.codegen.cuda.kernel_text import KernelText
from redlang.codegen.cuda.matrix_text import MatrixText
from redlang.errors import InternalError

Text: TypeAlias = KernelText | MatrixText


def chain(texts: Sequence[Text], *, follows: bool, leads: bool) -> list[Text]:
    """Return kernels that wait for the one before them, and let the one after them begin.

    Args:
        texts: Kernels that run one after another.
        follows: Whether another of the same call comes before them.
        leads: Whether one comes after them.
    """
    last = len(texts) - 1
    return [
        _linked(text, follows=follows or place > 0, leads=leads or place < last)
        for place, text in enumerate(texts)
    ]


def _linked(text: Text, *, follows: bool, leads: bool) -> Text:
    lines = ["    t.wait_for_earlier()\n"] * follows + ["    t.let_later_begin()\n"] * leads
    if not lines:
        return text
    head = re.search(rf"(?m)^def {re.escape(text.entry)}\(.*\):\n", text.source)
    if head is None:
        raise InternalError(f"the text of {text.entry} defines no {text.entry}")
    source = "".join([text.source[: head.end()], *lines, text.source[head.end() :]])
    return replace(text, source=source, follows=follows)
