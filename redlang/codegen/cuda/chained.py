"""Kernels that overlap at their ends: the next is on its way to the SMs while one still runs.

A kernel first waits until everything before it is done and seen; then it lets its follower, of the
same call or of a later one, begin as soon as all of its own blocks have. The follower's blocks come
to SMs as there is room. That saves the way there, about a microsecond, and what blocks prefetch
while they wait (`prefetching`). Nothing is read or written early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from redlang.codegen.cuda.kernel_text import KernelText
from redlang.codegen.cuda.matrix_text import MatrixText
from redlang.errors import InternalError
from redlang.schedule.device import Device

Text: TypeAlias = KernelText | MatrixText

_WAIT_THEN_LEAD = ("    t.wait_for_earlier()", "    t.let_later_begin()")


def chained(text: Text, device: Device) -> Text:
    """Return a kernel that waits for what runs before it, and lets what comes after it begin.

    Its first blocks, as many as may have to wait, prefetch what they will read.
    """
    lines: list[str] = []
    if isinstance(text, KernelText) and text.prefetch is not None:
        waiting = min(text.prefetch.blocks, device.sm.threads // text.threads)
        # Blocks of a cluster do the same.
        first = -(-waiting * device.sms // text.cluster) * text.cluster
        lines.append(f"    if cuda.blockIdx.x < {first}:")
        lines += [f"        {line}" for line in text.prefetch.lines]
    return replace(with_lines(text, [*lines, *_WAIT_THEN_LEAD]), follows=True)


def with_lines(text: Text, lines: Sequence[str]) -> Text:
    """Return a kernel with lines before everything that reads memory."""
    head = re.search(rf"(?m)^def {re.escape(text.entry)}\(.*\):\n", text.source)
    if head is None:
        raise InternalError(f"the text of {text.entry} defines no {text.entry}")
    opening = text.opening if isinstance(text, KernelText) else 0
    body = text.source[head.end() :].split("\n")
    body[opening:opening] = lines
    return replace(text, source=text.source[: head.end()] + "\n".join(body))
