"""Kernels that overlap at their ends: the next is on its way to the SMs while one still runs.

A kernel's first instruction waits until everything before it is done and seen; then it lets its
follower, of the same call or of a later one, begin as soon as all of its own blocks have. The
follower's blocks come to SMs as there is room. Only the way there is saved, about a microsecond,
and nothing is read or written early.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeAlias

from redlang.codegen.cuda.kernel_text import KernelText
from redlang.codegen.cuda.matrix_text import MatrixText
from redlang.errors import InternalError

Text: TypeAlias = KernelText | MatrixText

_WAIT_THEN_LEAD = "    t.wait_for_earlier()\n    t.let_later_begin()\n"


def chained(text: Text) -> Text:
    """Return a kernel that waits for what runs before it, and lets what comes after it begin."""
    head = re.search(rf"(?m)^def {re.escape(text.entry)}\(.*\):\n", text.source)
    if head is None:
        raise InternalError(f"the text of {text.entry} defines no {text.entry}")
    source = text.source[: head.end()] + _WAIT_THEN_LEAD + text.source[head.end() :]
    return replace(text, source=source, follows=True)
