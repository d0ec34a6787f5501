"""States that the blocks of a unit post to the one that begins last, and that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.cuda.folds import BYTES
from redlang.codegen.cuda.frame import Frame, Value
from redlang.codegen.cuda.kernel_text import Counters

MOST = 32
"""Words of a block's states up to which they are posted: one lane of a warp each."""
PLACE = 8
"""Bytes of a word and its mark."""
_WORD = 4


def words(frame: Frame, states: Sequence[Value]) -> int:
    """Return the 32-bit words of a block's states."""
    return sum(BYTES[state.code] // _WORD * frame.size(state.axes) for state in states)


def suits(frame: Frame, states: Sequence[Value], bits: Sequence[int]) -> bool:
    """Tell whether states are few, and the same in all threads: `bits` tell those apart."""
    return words(frame, states) <= MOST and 1 << len(bits) == frame.plan.threads


def post(frame: Frame, states: Sequence[Value], unit: str, own: str, parts: str) -> None:
    """Write the posting of this block's states: part `own` of the `parts` of a unit."""
    size = words(frame, states) * PLACE
    frame.line(f"places = {frame.parameter(Counters())} + {unit} * {parts} * {size}")
    make = frame.module.declare("post", f"t.post({_kinds(frame, states)})")
    frame.line(f"{make}(places, {own}, {parts}, {', '.join(state.text for state in states)})")


def take(
    frame: Frame, states: Sequence[Value], names: Sequence[str], number: str, parts: str
) -> None:
    """Write the wait for the states of part `number`, if there are `some`, under new names."""
    make = frame.module.declare("take", f"t.taken({_kinds(frame, states)})")
    frame.line(f"{', '.join(names)} = {make}(places, {number}, {parts}, some)")


def _kinds(frame: Frame, states: Sequence[Value]) -> str:
    return ", ".join(f'("{state.code}", {frame.size(state.axes)})' for state in states)
