"""What is read near elements, and anywhere: bytes that move, neighbours that lie side by side."""

from redlang.algebra.fuse import fuse
from redlang.ir.normalise import normalise
from redlang.ir.program import ArrayParam
from redlang.schedule.facts import Facts, Layout
from redlang.schedule.nests import find_nests
from tests.frontend.resolving import program

CHANGES = 'def f(x: "m n") -> "m":\n    return sum[n](x[m, n + 1] * x + x[m, n - 1])\n'
ROWS = 'def f(x: "v d", i: "i64[m]") -> "m":\n    return sum[d](fill(x[i, d], 0))\n'
LAGS = 'def f(x: "m n", y: "l") -> "m l":\n    return sum[n](fill(x[m, n + l], 0) * y)\n'


def accesses(text, **extents):
    fusion = fuse(normalise(program(text)))
    nest = find_nests(fusion.program, fusion.sweeps)[-1]
    arrays = [p for p in fusion.program.params if isinstance(p, ArrayParam)]
    units = {p.name: p.axes[-1] for p in arrays if p.name != "i"}
    facts = Facts(fusion.program, nest, extents, Layout(units, dict.fromkeys(units, 16)))
    return facts, {(a.array, a.places): a for a in facts.accesses if not a.written}


def test_neighbours_of_what_is_read_anyway_move_no_more_bytes():
    facts, found = accesses(CHANGES, m=100, n=5000)
    own, near = found["x", "own"], found["x", "near"]
    assert (own.moved, near.moved) == (100 * 5000 * 4, 0)
    assert (near.times, near.by_element, near.unit) == (2, True, "n")
    assert (facts.vector, facts.width) == ("n", 4)


def test_rows_of_a_small_table_are_read_from_memory_once():
    facts, found = accesses(ROWS, v=500, d=64, m=100_000)
    table = found["x", "any"]
    assert (table.fetched, table.moved) == (100_000 * 64 * 4, 500 * 64 * 4)
    assert (table.unit, table.by_element, facts.vector) == ("d", False, "d")


def test_sums_of_indices_run_along_the_longest():
    _, found = accesses(LAGS, m=10, n=5000, l=6)
    lagged = found["x", "any"]
    assert (lagged.unit, lagged.by_element) == ("n", True)
