"""A lower bound on a kernel's time from what it must do: bytes, operations, launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redlang.schedule.device import Device

Pipe = Literal["memory", "arithmetic", "comparisons", "special functions", "double", "tensor core"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel must do, whatever its plan.

    Attributes:
        bytes_read, bytes_written: Traffic with global memory, each byte once.
        fma: f32 and integer operations (a multiply-add is one).
        extreme: Comparisons, minima, maxima and conversions.
        special: exp2, log2, reciprocals, roots.
        double: f64 operations.
        launches: Kernels that run one after another.
    """

    bytes_read: float = 0
    bytes_written: float = 0
    fma: float = 0
    extreme: float = 0
    special: float = 0
    double: float = 0
    launches: int = 1

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.fma + other.fma,
            self.extreme + other.extreme,
            self.special + other.special,
            self.double + other.double,
            self.launches + other.launches,
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on time.

    Attributes:
        time_us: The bound: the busiest pipe's time plus the launches'.
        limiter: The busiest pipe, or `launch` where launching takes longer.
        pipes_us: Time of each pipe alone.
        launch_us: Time of launching.
    """

    time_us: float
    limiter: Pipe | Literal["launch"]
    pipes_us: tuple[tuple[Pipe, float], ...]
    launch_us: float


def roofline(work: Work, device: Device, *, sms: int | None = None) -> Bound:
    """Return the least time that `work` takes on `device`.

    Pipes run side by side, launches do not. Memory is as fast as a copy on the whole device.

    Args:
        work: What is done.
        device: Where.
        sms: SMs that have anything to do, where the plan has fewer blocks than SMs.
    """
    busy = device.sms if sms is None else max(1, min(sms, device.sms))
    # operations a microsecond of one lane-operation a clock on every busy SM
    rate = busy * device.clock_mhz
    sm = device.sm
    pipes: dict[Pipe, float] = {
        "memory": (work.bytes_read + work.bytes_written) / (device.bandwidth_gb_s * 1e3),
        "arithmetic": work.fma / (rate * sm.fma),
        "comparisons": work.extreme / (rate * sm.extreme),
        "special functions": work.special / (rate * sm.special),
        "double": work.double / (rate * sm.double),
    }
    slowest = max(pipes, key=lambda pipe: pipes[pipe])
    launch = work.launches * device.launch_us
    limiter: Pipe | Literal["launch"] = slowest if pipes[slowest] >= launch else "launch"
    return Bound(pipes[slowest] + launch, limiter, tuple(pipes.items()), launch)
