"""Which elements of a tile take part in a fold: text of conditions, and of masks of ends of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redlang.codegen.cuda.frame import conjunction


@dataclass(frozen=True, slots=True)
class TakesPart:
    """What says whether an element takes part, as text inside a scalar function.

    Attributes:
        conditions: Tests (bool) that must all hold.
        masks: Words (u32) that must all have their bits set; they need no predicates.
    """

    conditions: Sequence[str]
    masks: Sequence[str]

    def lines(self) -> list[str]:
        """Return the lines that come before what is chosen."""
        lines = []
        if self.conditions:
            lines.append(f"takes_part = {conjunction(self.conditions)}")
        if self.masks:
            lines.append(f"is_there = {' & '.join(self.masks)}")
        return lines

    def chosen(self, state: str, neutral: str) -> str:
        """Return the text of a state, or of the neutral one for what takes no part."""
        if self.conditions:
            state = f"select(takes_part, {state}, {neutral})"
        return f"masked(is_there, {state}, {neutral})" if self.masks else state
