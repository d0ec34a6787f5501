"""What a warm call on a GPU does, as data, and the function that it becomes.

A *course* holds everything that follows from extents, strides and code. It is text and numbers, so
that the disk cache can keep it: a later process loads machine code and binds the course, and needs
neither plans nor programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from redlang.ir.types import U8
from redlang.runtime.counters import StreamCounters
from redlang.runtime.driver import Driver
from redlang.runtime.memory import Library
from redlang.runtime.tensor_maps import MapShape, map_maker
from redlang.values import dataclass

Run: TypeAlias = Callable[..., None]
"""`run(stream, *addresses, *scalars)`: addresses of inputs, then results."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """Where the arrays of a call are, as far as code depends on it.

    Attributes:
        strides: Elements between neighbours along each axis, by array (parameters, `result.<i>`).
        addresses: The lowest bits of each address: its offset from a multiple of 16 bytes.
        pointed: Scalars that lie on the device, with their element types.
    """

    strides: Mapping[str, Mapping[str, int]]
    addresses: Mapping[str, int]
    pointed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """Machine code of one kernel, and what its launches have in common.

    Attributes:
        cubin: The code.
        entry: The kernel's name in it.
        threads: Threads a block.
        shared_bytes: Dynamic shared memory of a block.
        kinds: Its parameters' types, keys of `targets.stub.PARAMETER_KINDS`.
        early: From how many blocks on it may be launched before what is ahead of it is done; None
            where it does not wait for that itself.
    """

    cubin: bytes
    entry: str
    threads: int
    shared_bytes: int
    kinds: tuple[str, ...]
    early: int | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What a call launches.

    Attributes:
        name: The program's name.
        arrays, scalars: How many addresses `a0`... and numbers `s0`... it takes.
        lines: Its text; it may name `stream`, launches `launch0`..., `q` (where the workspace
            begins), `counter`, and what follows.
        constants: The numbers that the text names.
        maps: The tensor maps that the text makes of addresses.
        space_bytes: Size of the workspace; None where there is none.
        counters: How many counters it needs.
    """

    name: str
    arrays: int
    scalars: int
    lines: tuple[str, ...]
    constants: Mapping[str, int]
    maps: Mapping[str, MapShape]
    space_bytes: int | None
    counters: int


def load(images: Sequence[Image], driver: Driver, number: int) -> list[Callable[..., int]]:
    """Load the kernels of a plan onto a device; return their launch functions."""
    return [
        driver.load(
            image.cubin,
            image.entry,
            number,
            threads=image.threads,
            shared_bytes=image.shared_bytes,
            kinds=image.kinds,
            early=image.early,
        ).launch
        for image in images
    ]


def bind(
    course: Course,
    launches: Sequence[Callable[..., int]],
    driver: Driver,
    library: Library,
    device: str,
    counters: StreamCounters,
) -> Run:
    """Return the function that launches what a course says.

    Args:
        course: The course.
        launches: The kernels, as loaded.
        driver: What launches and encodes.
        library: Whose memory the workspace is.
        device: Where the arrays are.
        counters: Where blocks count themselves.
    """
    names: dict[str, object] = {"fail": functools.partial(_fail, driver), **course.constants}
    names |= {f"launch{number}": launch for number, launch in enumerate(launches)}
    names |= {name: map_maker(driver, shape) for name, shape in course.maps.items()}
    lines: list[str] = []
    if course.space_bytes:
        placed = {"shape": f"({course.space_bytes},)", "steps": "(1,)"}
        for key, value in library.empty_names(U8, device).items():
            placed[key] = f"space_{key}"
            names[placed[key]] = value
        lines.append(f"space = {library.empty_text.format_map(placed)}")
        lines.append(f"q = {library.address_text.format('space')}")
    elif course.space_bytes is not None:
        lines.append("q = 0")
    if course.counters:
        names["counters"] = counters.get
        lines.append(f"counter = counters(stream, {course.counters})")
    given = [f"a{i}" for i in range(course.arrays)] + [f"s{i}" for i in range(course.scalars)]
    text = _factory_text(tuple(names), given, [*lines, *course.lines])
    run: Run = _factory(text, course.name)(*names.values())
    return run


def _factory_text(names: Sequence[str], given: Sequence[str], body: Sequence[str]) -> str:
    lines = [f"def make({', '.join(names)}):", f"    def run({', '.join(['stream', *given])}):"]
    lines += [f"        {line}" for line in body or ("pass",)]
    return "\n".join([*lines, "    return run"]) + "\n"


@functools.lru_cache(maxsize=1024)
def _factory(text: str, name: str) -> Callable[..., Run]:
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<redlang run of {name}>", "exec"), namespace)
    made: Callable[..., Run] = namespace["make"]
    return made


def _fail(driver: Driver, status: int) -> None:
    raise driver.error("cuLaunchKernel", status)
