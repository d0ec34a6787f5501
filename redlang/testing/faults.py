"""What a fuzzer reports."""

from __future__ import annotations

from dataclasses import dataclass

from redlang.testing.cascades import Cascade


@dataclass(frozen=True, slots=True)
class Fault:
    """A cascade that some form computes wrongly.

    Attributes:
        who: The form.
        problem: How its results differ, or its traceback.
    """

    seed: int
    who: str
    problem: str
    cascade: Cascade

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.who}\n{self.problem}\n{self.cascade}"
