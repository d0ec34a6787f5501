"""Stages of fewer axes than others of their sweep: apart where an axis is long, else together."""

import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.normalise import normalise
from redlang.schedule.nests import find_nests, wide_axes
from tests.frontend.resolving import program
from tests.kernels import WEIGHTED

POOLED = """
def f(s: "n", x: "n d") -> "d":
    p = exp(s - max[n](s))
    return sum[n](p * x) / sum[n](p)
"""


def nests_of(text, **extents):
    fusion = fuse(normalise(program(text)))
    return find_nests(fusion.program, fusion.sweeps, wide_axes(extents))


def test_the_sum_of_all_weights_has_a_nest_of_its_own_beside_many_rows():
    first, second = nests_of(WEIGHTED.text, m=5000, n=100)
    assert (first.base, first.exports) == ((), ("z",))
    assert second.base == ("m",)
    assert second.results == (0, 1)
    assert not {"z"} & {stage for sweep in second.sweeps for stage in sweep.stages}


def test_it_stays_with_the_others_where_rows_are_few():
    found = nests_of(WEIGHTED.text, m=3, n=100)
    assert found[0].base == ()
    assert next(stage for sweep in found[0].sweeps for stage in sweep.stages) == "z"


@pytest.mark.parametrize("d", [3, 5000])
def test_what_reads_an_extreme_of_the_same_sweep_stays_with_it(d):
    stages = [s.stages for nest in nests_of(POOLED, n=1000, d=d) for s in nest.sweeps]
    assert stages in nests_of_without_splitting(d)


def nests_of_without_splitting(d):
    fusion = fuse(normalise(program(POOLED)))
    whole = [sweep.stages for sweep in fusion.sweeps]
    return [whole, whole[::-1]]
