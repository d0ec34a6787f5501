"""Generated Python text → PTX → machine code, for a named target, with or without a GPU.

The one module that calls numba-cuda, and only as a compiler: launching is `runtime.driver`'s. Numba
turns the text into PTX; `ptxas` turns PTX into a cubin and reports registers and spills. PTX never
goes through nvJitLink, which ignores `setmaxnreg` and spills where `ptxas` does not.
"""

from __future__ import annotations

import functools
import gc
import linecache
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Any

from redlang.errors import BackendError
from redlang.targets.assembler import Assembly, ToolMissingError, assemble

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
        _try_out(compiler())
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
    capability = parse_target(target)
    cuda = compiler()
    # Numba keeps global state while it compiles, so one thread at a time.
    with _lock, _without_collection():
        function = _execute(source, entry)
        try:
            return _compile(
                cuda, function, entry, parameters, capability, (max_threads, min_blocks)
            )
        except Exception as error:
            _try_out(cuda)
            raise BackendError(
                f"numba-cuda cannot compile {entry!r} for {target}: {error}",
                hint=f"installed: {installed_versions()}",
            ) from error


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python from searching for cycles: Numba makes many objects, and drops few meanwhile.

    The search takes a fifth of a compile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _compile(
    cuda: ModuleType,
    function: Callable[..., None],
    entry: str,
    parameters: Sequence[str],
    capability: tuple[int, int, str],
    bounds: tuple[int, int],
) -> str:
    names = {"u64": "uint64", "i64": "int64", "i32": "int32", "u32": "uint32", "f32": "float32"}
    names |= {"f64": "float64", "bool": "boolean", "map": "uint64"}
    types = cuda.types
    signature = types.void(*(getattr(types, names[code]) for code in parameters))
    cc = capability if capability[2] else capability[:2]
    # The numba ABI is the only one for kernels. fastmath stays off: the few fast instructions
    # are chosen one by one, each with its error bound.
    ptx, _ = cuda.compile(
        function, signature, device=False, abi="numba", cc=cc, launch_bounds=bounds
    )
    text = _tidy(ptx, entry)
    for number in (i for i, code in enumerate(parameters) if code == "map"):
        text = _by_value(text, f"{entry}_param_{number}")
    return text


def _by_value(ptx: str, parameter: str) -> str:
    """Make a 64-bit parameter one of 128 bytes whose address the kernel reads instead."""
    ptx = re.sub(rf"\.param \.u64 {parameter}\b", f".param .align 64 .b8 {parameter}[128]", ptx)
    return re.sub(
        rf"ld\.param\.u64\s+(%rd\d+), \[{parameter}\];",
        rf"mov.b64 \1, {parameter}; cvta.param.u64 \1, \1;",
        ptx,
    )


def _tidy(ptx: str, entry: str) -> str:
    """Give the kernel its own name, drop Numba's environment pointer, set the PTX version.

    Numba's mangled name holds counters; without it the same source gives the same bytes.
    """
    mangled = re.search(r"\.visible \.entry (\w+)", ptx)
    assert mangled is not None, ptx
    lines = [line for line in ptx.split("\n") if "NumbaEnv" not in line]
    text = "\n".join(lines).replace(mangled[1], entry)
    return re.sub(r"(?m)^\.version .*$", f".version {_FIRST_WITH_EVERY_TARGET}", text)


def _execute(source: str, entry: str) -> Callable[..., None]:
    """Run generated text in its own namespace and return the function `entry`."""
    file = f"<redlang {entry} {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "redlang_generated"}
    exec(compile(source, file, "exec"), namespace)
    function: Callable[..., None] = namespace[entry]
    return function


@functools.cache
def compiler() -> ModuleType:
    """Return `numba.cuda`.

    Raises:
        BackendError: It is missing; the message names the versions found.
    """
    with _lock:
        try:
            # 0.4 s, which only who compiles for a GPU pays.
            from redlang.targets.numba_cuda import cuda  # noqa: PLC0415
        except ImportError as error:
            raise ToolMissingError(
                f"numba-cuda cannot be imported: {error}",
                hint=f"{INSTALL_HINT}; installed: {installed_versions()}",
            ) from error
        module: ModuleType = cuda
        return module


@functools.cache
def _try_out(cuda: ModuleType) -> None:
    """Tell, once, a text that does not compile from a compiler that compiles nothing.

    Raises:
        ToolMissingError: It is the compiler; the message names the versions found.
    """
    _self_test(cuda)


_SELF_TEST = """\
from redlang.targets import tiles as t

add = t.function("f32", "f32", "f32")(lambda a, b: a + b)
load = t.load(t.Access("f16", 8))
total = t.fold(add, {"n": 8}, "n")
put = t.store(t.Access("f32", 1))


def self_test(x, y):
    put(y, True, total(load(x)))
"""


def _self_test(cuda: ModuleType) -> None:
    """Compile one small kernel that uses inline PTX, tiles and a compiled sub-function."""
    try:
        function = _execute(_SELF_TEST, "self_test")
        ptx = _compile(cuda, function, "self_test", ("u64", "u64"), (9, 0, "a"), (32, 1))
        wanted = (".target sm_90a", "L1::no_allocate.v4.b32", "add.f32", ".entry self_test(")
        missing = [text for text in wanted if text not in ptx]
    except Exception as error:
        raise ToolMissingError(
            f"numba-cuda fails on a small kernel: {error}",
            hint=f"installed: {installed_versions()}; {INSTALL_HINT}",
        ) from error
    if missing:
        raise ToolMissingError(
            f"numba-cuda compiles a small kernel to something else: no {missing} in its PTX",
            hint=f"installed: {installed_versions()}",
        )


def installed_versions() -> str:
    """Return the versions of everything that takes part in compiling, for messages."""
    compilers = ("numba-cuda", "numba", "llvmlite", "numpy")
    packages = (*compilers, "cuda-bindings", "cuda-core", "nvidia-nvvm", "nvidia-cuda-nvcc")
    return ", ".join(f"{name} {_version(name)}" for name in packages)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
