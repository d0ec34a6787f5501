"""Which kernels may be launched before what is ahead of them is done."""

import pytest

import redlang
from redlang.frontend.resolve import Signature
from redlang.ir.extents import bind_extents
from redlang.ir.types import DTYPES
from redlang.runtime.cuda_compiler import cuda_arrays
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import DEVICES
from redlang.schedule.estimates import Estimate, early
from redlang.schedule.occupancy import occupancy
from redlang.schedule.roofline import Work, roofline

H200 = DEVICES["NVIDIA H200"]
MB = 1e6


@pytest.mark.parametrize(
    ("megabytes", "blocks", "fits", "least"),
    [
        # Some SMs would get 12 blocks of 64 KB, others 6, and take 23 µs for 18.
        (67, 1024, 12, 1320),
        # The work of as many as fit takes 5 µs: wherever they come to, it is done as soon.
        (16.8, 1024, 10, 0),
        # Each block finds an SM of its own.
        (67, 64, 2, 0),
        (67, 67, 2, 220),
        (0, 0, 2, 0),
    ],
)
def test_early_launches_leave_no_sm_far_behind(megabytes, blocks, fits, least):
    bound = roofline(Work(bytes_read=megabytes * MB, bytes_written=0), H200)
    demand = occupancy(BlockDemand(128, 48, 0), H200.sm)
    assert early(Estimate(0, "memory", bound, demand, 48, blocks, ()), fits, H200) == least


def test_only_what_ends_a_call_hides_its_joining():
    kernel = redlang.compile("""
def f(x: "m n") -> "":
    s = sum[n](x)
    return sum[m](s * s)
""")
    machine = kernel.machine
    program = machine.caller.resolve(Signature({"x": DTYPES["f32"]})).program
    extents = dict(bind_extents(program, {"x": (16, 1 << 20)}, {}))
    compiler = machine.cuda_compiler(program, H200)
    choice, _ = compiler.classify(extents, cuda_arrays(compiler.compiler.program, extents))
    hidden = [
        {r.estimates[-1].hidden_us > 0 for r in nest if r.candidate.parts[-1].across}
        for nest in choice.ranked
    ]
    assert len(hidden) == 2
    assert True not in hidden[0]
