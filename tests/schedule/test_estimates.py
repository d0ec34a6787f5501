"""Which kernels may be launched before what is ahead of them is done."""

import pytest

from redlang.schedule.device import DEVICES
from redlang.schedule.estimates import early
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
    assert early(bound, blocks, fits, H200) == least
