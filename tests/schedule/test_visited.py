import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.build import Builder
from redlang.ir.normalise import normalise
from redlang.ir.program import Reduce
from redlang.schedule.visited import is_band
from tests.kernels import resolve_text

TEXT = """
def f(x: "m n", doc: "i32[n]", left: int) -> "m":
    s = where({}, x)
    return sum[n](exp(s - max[n](s)))
"""


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        ("(n <= m) & (n > m - 100)", True),
        ("(n <= m) & ((left < 0) | (n >= m - left))", False),
        ("n <= m", False),
        ("(n <= m) & ((n > m - 100) | (n < 4))", False),
        ("(n <= m) & (doc[n] == 3)", False),
    ],
)
def test_a_band_is_one_run_between_two_bounds(mask, band):
    program = normalise(resolve_text(TEXT.format(mask).strip()))
    fusion = fuse(program, mode="auto")
    (sweep,) = fusion.sweeps
    definitions = {d.names[0]: d.value for d in fusion.program.definitions}

    def pointwise(name):
        value = definitions.get(name)
        return None if isinstance(value, Reduce) else value

    assert is_band(sweep, "n", pointwise, Builder.of(fusion.program)) == band
