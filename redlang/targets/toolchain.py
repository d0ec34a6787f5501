"""Generated Python text → PTX → machine code, for a named target, with or without a GPU.

`targets.translate` makes LLVM text of it, libNVVM makes PTX of that, and `ptxas` turns PTX into a
cubin and reports registers and spills. PTX never goes through nvJitLink, which ignores `setmaxnreg`
and spills where `ptxas` does not.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata

from redlang.errors import BackendError
from redlang.targets import nvvm
from redlang.targets.assembler import Assembly, ToolMissingError, assemble, find_ptxas

INSTALL_HINT = 'pip install "redlang[cuda]" installs the compiler; no GPU is needed to compile'

PARAMETER_TYPES = ("u64", "i64", "i32", "u32", "f32", "f64", "bool", "map")
"""What a kernel's parameters may be; addresses travel as u64. A `map` is 128 bytes by value, a
tensor map; the kernel sees its address."""

_FIRST_WITH_EVERY_TARGET = "8.6"
"""PTX version of the text. libNVVM writes its own newest, which an older `ptxas` or driver refuses;
8.6 (CUDA 12.7) is the first that knows sm_100, and the text uses nothing newer."""

_TARGET = re.compile(r"(\d+)\.(\d)([af]?)")

_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Binary:
    """A kernel compiled for one target.

    Attributes:
        entry: The kernel's name in the cubin.
        target: Compute capability, as `"9.0a"`.
        source: The Python text it came from.
        ptx: The PTX text.
        assembly: The cubin and what `ptxas` reported about it.
    """

    entry: str
    target: str
    source: str = field(repr=False)
    ptx: str = field(repr=False)
    assembly: Assembly


def parse_target(target: str) -> tuple[int, int, str]:
    """Return major, minor and suffix of a compute capability such as `"8.0"` or `"9.0a"`."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise BackendError(
            f"{target!r} is not a compute capability",
            hint='write it as "8.0", "8.9" or "9.0a"',
        )
    return int(match[1]), int(match[2]), match[3]


def build(
    source: str,
    entry: str,
    parameters: Sequence[str],
    target: str,
    *,
    max_threads: int,
    min_blocks: int = 1,
    cluster: int = 1,
) -> Binary:
    """Compile the kernel `entry` of generated Python text for `target`.

    Args:
        source: A module's text that defines a function called `entry`.
        entry: The function, and the kernel's name in the binary.
        parameters: Its parameter types, of `PARAMETER_TYPES`.
        target: Compute capability, as `"9.0a"`.
        max_threads: The largest block that the kernel is launched with.
        min_blocks: Blocks that registers should leave room for on one SM.
        cluster: Blocks of a cluster; every launch has whole clusters.

    Raises:
        BackendError: The compiler is missing, does not work, or refuses the text.
    """
    ptx = to_ptx(source, entry, parameters, target, max_threads=max_threads, min_blocks=min_blocks)
    if cluster > 1:
        # The kernel says so itself: a launch needs no attribute for it.
        ptx = ptx.replace(".maxntid", f".reqnctapercluster {cluster}\n.maxntid", 1)
    try:
        assembly = assemble(ptx, target)
    except BackendError:
        _try_out()
        raise
    return Binary(entry, target, source, ptx, assembly)


def to_ptx(
    source: str,
    entry: str,
    parameters: Sequence[str],
    target: str,
    *,
    max_threads: int,
    min_blocks: int = 1,
) -> str:
    """Compile the kernel `entry` of generated Python text to PTX; arguments as in `build`."""
    major, minor, suffix = parse_target(target)
    options = [f"-arch=compute_{major}{minor}{suffix}", "-opt=3"]
    try:
        with _lock:
            text = _module(source, entry, parameters, (max_threads, min_blocks))
            ptx = nvvm.compile_text(text, options)
    except ToolMissingError:
        raise
    except Exception as error:
        _try_out()
        raise BackendError(
            f"{entry!r} does not compile for {target}: {error}",
            hint=f"installed: {installed_versions()}",
        ) from error
    ptx = re.sub(r"(?m)^\.version .*$", f".version {_FIRST_WITH_EVERY_TARGET}", ptx)
    for number in (i for i, code in enumerate(parameters) if code == "map"):
        ptx = _by_value(ptx, f"{entry}_param_{number}")
    return ptx


def _module(source: str, entry: str, parameters: Sequence[str], bounds: tuple[int, int]) -> str:
    """Return the LLVM module of a kernel."""
    # The words load here, where they are needed.
    from redlang.targets import kinds, translate  # noqa: PLC0415

    types = [kinds.SCALARS["u64" if code == "map" else code] for code in parameters]
    namespace = translate.execute(source, f"<redlang {entry}>")
    return translate.translate(namespace[entry], entry, types, bounds)


def _by_value(ptx: str, parameter: str) -> str:
    """Make a 64-bit parameter one of 128 bytes whose address the kernel reads instead."""
    ptx = re.sub(rf"\.param \.u64 {parameter}\b", f".param .align 64 .b8 {parameter}[128]", ptx)
    return re.sub(
        rf"ld\.param\.u64\s+(%rd\d+), \[{parameter}\];",
        rf"mov.b64 \1, {parameter}; cvta.param.u64 \1, \1;",
        ptx,
    )


_SELF_TEST = """\
from redlang.targets import tiles as t

add = t.function("f32", "f32", "f32")(lambda a, b: a + b)
load = t.load(t.Access("f16", 8))
total = t.fold(add, {"n": 8}, "n")
put = t.store(t.Access("f32", 1))


def self_test(x, y):
    put(y, True, total(load(x)))
"""


def is_installed() -> bool:
    """Tell whether there is a compiler."""
    try:
        nvvm.load()
        find_ptxas()
    except ToolMissingError:
        return False
    return True


@functools.cache
def _try_out() -> None:
    """Tell, once, a text that does not compile from a compiler that compiles nothing.

    Raises:
        ToolMissingError: It is the compiler; the message names the versions found.
    """
    try:
        text = _module(_SELF_TEST, "self_test", ("u64", "u64"), (32, 1))
        ptx = nvvm.compile_text(text, ["-arch=compute_90a"])
        wanted = (".target sm_90a", "L1::no_allocate.v4.b32", "add.f32", ".entry self_test(")
        missing = [text for text in wanted if text not in ptx]
    except Exception as error:
        raise ToolMissingError(
            f"a small kernel does not compile: {error}",
            hint=f"installed: {installed_versions()}; {INSTALL_HINT}",
        ) from error
    if missing:
        raise ToolMissingError(
            f"a small kernel compiles to something else: no {missing} in its PTX",
            hint=f"installed: {installed_versions()}",
        )


def installed_versions() -> str:
    """Return the versions of everything that takes part in compiling, for messages."""
    packages = ("llvmlite", "nvidia-nvvm", "nvidia-cuda-nvcc")
    return ", ".join(f"{name} {_version(name)}" for name in packages)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
