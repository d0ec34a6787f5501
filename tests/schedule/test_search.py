"""Which plan is compiled after one that the compiler spilled."""

from typing import Any

import pytest

from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.parts import Candidate, Part
from redlang.schedule.search import MUCH, Ranked, following


def ranked(columns: int, rows: int = 128) -> Ranked:
    unused: Any = None
    plan = MatrixPlan((("m", rows),), (("n", columns), ("e", 128)))
    return Ranked(Candidate("matrix", (Part(unused, unused, unused, matrix=plan),)), ())


OPTIONS = [ranked(128), ranked(112), ranked(96), ranked(64, rows=64), ranked(64), ranked(32)]


@pytest.mark.parametrize(
    ("number", "spill_bytes", "expected"),
    # Other rows, or half the columns, may fit.
    [(0, MUCH - 1, 1), (0, MUCH, 3), (1, MUCH, 3), (2, 5 * MUCH, 3), (4, MUCH, 5), (5, MUCH, 6)],
)
def test_much_narrower_plans_follow_one_that_spills_much(number, spill_bytes, expected):
    assert following(OPTIONS, number, spill_bytes) == expected
