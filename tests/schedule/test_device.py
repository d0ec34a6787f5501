import pytest

from redlang.errors import BackendError
from redlang.schedule.device import DEVICES, SM_LIMITS, sm_limits


@pytest.mark.parametrize(
    ("capability", "threads", "shared_kib"),
    [("8.0", 2048, 164), ("8.6", 1536, 100), ("8.9", 1536, 100), ("9.0", 2048, 228)],
)
def test_limits_are_those_of_the_programming_guide(capability, threads, shared_kib):
    limits = SM_LIMITS[capability]
    assert limits.threads == threads
    assert limits.shared_bytes == shared_kib * 1024
    assert limits.shared_bytes_per_block == limits.shared_bytes - 1024
    assert limits.registers == 65536


def test_every_known_device_has_limits_and_a_target():
    for device in DEVICES.values():
        assert device.sm is SM_LIMITS[device.capability]
        assert device.target.rstrip("a") == device.capability


def test_architecture_specific_targets_start_at_hopper():
    assert DEVICES["NVIDIA H200"].target == "9.0a"
    assert DEVICES["NVIDIA L4"].target == "8.9"


def test_clusters_start_at_hopper():
    assert DEVICES["NVIDIA H200"].cluster == 8
    assert DEVICES["NVIDIA L4"].cluster == 1


def test_an_unknown_capability_gets_the_nearest_older_limits():
    assert sm_limits("8.7") is SM_LIMITS["8.6"]
    assert sm_limits("12.0") is SM_LIMITS["10.0"]


def test_names_a_device_that_is_too_old():
    with pytest.raises(BackendError, match=r"compute capability 7\.5 is older than 8\.0"):
        sm_limits("7.5")
