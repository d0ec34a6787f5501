from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.schedule.device import DEVICES
from redlang.schedule.roofline import Work, roofline

H200 = DEVICES["NVIDIA H200"]
amounts = st.floats(0, 1e12)
works = st.builds(Work, amounts, amounts, amounts, amounts, amounts, amounts, st.integers(1, 4))


def test_a_softmax_is_bound_by_memory():
    elements = 4096 * 4096
    work = Work(
        2 * elements, 2 * elements, fma=9 * elements, extreme=2 * elements, special=elements
    )
    bound = roofline(work, H200)
    assert bound.limiter == "memory"
    # 67 MB at 4300 GB/s
    assert bound.time_us == pytest.approx(15.6 + H200.launch_us, abs=0.1)


def test_exponentials_can_bind():
    bound = roofline(Work(bytes_read=1e6, special=1e9), H200)
    assert bound.limiter == "special functions"
    assert bound.time_us - bound.launch_us == pytest.approx(1e9 / (132 * 16 * 1980), rel=1e-9)


def test_little_work_is_bound_by_the_launch():
    assert roofline(Work(bytes_read=1000), H200).limiter == "launch"


@given(works, works)
def test_more_work_never_takes_less(one, other):
    assert roofline(one + other, H200).time_us >= roofline(one, H200).time_us


@given(works, st.integers(1, 131))
def test_fewer_sms_are_never_faster(work, sms):
    assert roofline(work, H200, sms=sms).time_us >= roofline(work, H200).time_us


def test_sums_of_work_cover_every_field():
    one = Work(*range(1, len(fields(Work)) + 1))
    assert one + one == Work(*(2 * n for n in range(1, len(fields(Work)) + 1)))
