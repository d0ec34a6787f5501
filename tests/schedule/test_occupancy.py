from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import SM_LIMITS
from redlang.schedule.occupancy import occupancy

H200 = SM_LIMITS["9.0"]

demands = st.builds(
    BlockDemand,
    threads=st.integers(1, 1024),
    registers_per_thread=st.integers(0, 255),
    shared_bytes=st.integers(0, 227 * 1024),
)
limits = st.sampled_from(list(SM_LIMITS.values()))


@given(demands, limits, st.integers(0, 64))
def test_more_registers_never_raise_occupancy(demand, sm, more):
    greater = replace(demand, registers_per_thread=demand.registers_per_thread + more)
    assert occupancy(greater, sm).blocks <= occupancy(demand, sm).blocks


@given(demands, limits, st.integers(0, 100_000))
def test_more_shared_bytes_never_raise_occupancy(demand, sm, more):
    greater = replace(demand, shared_bytes=demand.shared_bytes + more)
    assert occupancy(greater, sm).blocks <= occupancy(demand, sm).blocks


@given(demands, limits)
def test_share_lies_between_zero_and_one(demand, sm):
    found = occupancy(demand, sm)
    assert 0 <= found.warp_share <= 1
    assert found.blocks * demand.warps <= sm.warps


@given(demands)
def test_what_fits_is_really_there(demand):
    blocks = occupancy(demand, H200).blocks
    assert blocks * demand.threads * demand.registers_per_thread <= H200.registers
    assert blocks * demand.shared_bytes <= H200.shared_bytes


@pytest.mark.parametrize(
    ("demand", "blocks", "limiter"),
    [
        (BlockDemand(256, 32), 8, "warps"),
        (BlockDemand(32, 16), 32, "blocks"),
        (BlockDemand(256, 64), 4, "registers"),
        # 65 registers of a warp round up to 2304: 7 warps a sub-partition, 28 an SM, 3 blocks
        (BlockDemand(256, 65), 3, "registers"),
        (BlockDemand(128, 32, 100 * 1024), 2, "shared memory"),
        # 76 KiB less the reserved kilobyte fits three times, 76 KiB only twice
        (BlockDemand(128, 32, 75 * 1024), 3, "shared memory"),
        (BlockDemand(128, 32, 76 * 1024), 2, "shared memory"),
    ],
)
def test_names_the_resource_that_runs_out(demand, blocks, limiter):
    found = occupancy(demand, H200)
    assert (found.blocks, found.limiter) == (blocks, limiter)


@pytest.mark.parametrize(
    "demand",
    [
        BlockDemand(1056, 32),
        BlockDemand(32, 256),
        BlockDemand(1024, 65),
        BlockDemand(32, 32, 228 * 1024),
    ],
)
def test_a_block_that_cannot_run_has_no_occupancy(demand):
    assert occupancy(demand, H200).warp_share == 0


def test_a_block_needs_threads():
    with pytest.raises(ValueError, match="not a block"):
        BlockDemand(0, 32)
