"""The GPU at hand, as the data that plans are made for."""

from __future__ import annotations

import ctypes
import functools

from redlang.runtime.driver import Driver, driver
from redlang.schedule.device import DEVICES, Device

# Copies reach about nine tenths of the pins' rate (4300 of 4800 GB/s measured on an H200).
_COPY_SHARE = 0.9


@functools.cache
def probe(number: int = 0) -> Device | None:
    """Return a device as the driver describes it, or None where there is no such GPU."""
    found = driver()
    if found is None or number >= count():
        return None
    return describe(found, number)


def count() -> int:
    """Return how many GPUs are visible."""
    found = driver()
    if found is None:
        return 0
    number = ctypes.c_int()
    found.call("cuDeviceGetCount", ctypes.byref(number))
    return number.value


def describe(found: Driver, number: int) -> Device:
    """Ask the driver for a device's figures; what it does not tell comes from known devices."""
    text = ctypes.create_string_buffer(256)
    found.call("cuDeviceGetName", text, len(text), number)
    name = text.value.decode()
    capability = f"{found.attribute(number, 'major')}.{found.attribute(number, 'minor')}"
    known = DEVICES.get(name)
    clock_mhz = found.attribute(number, "clock_khz") // 1000
    if known is not None:
        bandwidth, clock_mhz = known.bandwidth_gb_s, clock_mhz or known.clock_mhz
    else:
        bandwidth = _COPY_SHARE * _pin_rate_gb_s(found, number)
    return Device(
        name=name,
        capability=capability,
        sms=found.attribute(number, "sms"),
        clock_mhz=clock_mhz or 1500,
        bandwidth_gb_s=bandwidth or 1000.0,
        l2_bytes=found.attribute(number, "l2_bytes"),
    )


def _pin_rate_gb_s(found: Driver, number: int) -> float:
    """Return bus width times twice the memory clock (two transfers a clock)."""
    clock_khz = found.attribute(number, "memory_clock_khz")
    return 2 * clock_khz * 1e3 * found.attribute(number, "memory_bus_bits") / 8 / 1e9
