"""LLVM text → PTX with libNVVM, NVIDIA's own LLVM; called through ctypes, it needs no GPU."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redlang.errors import BackendError
from redlang.targets.assembler import ToolMissingError

LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
"""The data layout of 64-bit modules, as libNVVM's manual gives it."""

TRIPLE = "nvptx64-nvidia-cuda"

_Program = ctypes.c_void_p


def compile_text(text: str, options: Sequence[str]) -> str:
    """Compile an LLVM module to PTX.

    Args:
        text: The module, in the dialect of libNVVM.
        options: As `-arch=compute_90a`.

    Raises:
        BackendError: libNVVM is missing or refuses the text.
    """
    library = load()
    with _program(library) as program:
        data = text.encode()
        _add(library.nvvmAddModuleToProgram, program, data)
        if "@__nv_" in text or '@"__nv_' in text:
            # Only what the text calls of CUDA's mathematical functions is taken.
            _add(library.nvvmLazyAddModuleToProgram, program, _libdevice())
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvvmCompileProgram(program, len(options), given)
        if status:
            get = library.nvvmGetProgramLogSize, library.nvvmGetProgramLog
            raise BackendError(f"libNVVM: {_read(program, *get).strip()} (error {status})")
        return _read(program, library.nvvmGetCompiledResultSize, library.nvvmGetCompiledResult)


def find() -> Path:
    """Return the path of libNVVM.

    Raises:
        ToolMissingError: It is not installed.
    """
    return _find("libNVVM", _libraries())


@functools.cache
def load() -> ctypes.CDLL:
    """Return libNVVM.

    Raises:
        ToolMissingError: It is not installed.
    """
    return ctypes.CDLL(str(find()))


@functools.cache
def ir_version() -> tuple[int, int, int, int]:
    """Return the version of libNVVM's dialect: major, minor, and those of its debug data."""
    numbers = [ctypes.c_int() for _ in range(4)]
    status = load().nvvmIRVersion(*map(ctypes.byref, numbers))
    if status:
        raise ToolMissingError(f"libNVVM does not tell its version (error {status})")
    major, minor, debug_major, debug_minor = (number.value for number in numbers)
    return major, minor, debug_major, debug_minor


@contextmanager
def _program(library: ctypes.CDLL) -> Iterator[_Program]:
    program = _Program()
    status = library.nvvmCreateProgram(ctypes.byref(program))
    if status:
        raise BackendError(f"libNVVM makes no program (error {status})")
    try:
        yield program
    finally:
        library.nvvmDestroyProgram(ctypes.byref(program))


def _add(call: Callable[..., int], program: _Program, data: bytes) -> None:
    status = call(program, data, ctypes.c_size_t(len(data)), None)
    if status:
        raise BackendError(f"libNVVM does not read a module (error {status})")


def _read(program: _Program, size_of: Callable[..., int], get: Callable[..., int]) -> str:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)):
        return ""
    text = ctypes.create_string_buffer(size.value)
    return text.value.decode() if get(program, text) == 0 else ""


@functools.cache
def _libdevice() -> bytes:
    """Return CUDA's mathematical functions, as LLVM bitcode."""
    places = (folder / "nvvm" / "libdevice" / "libdevice.10.bc" for folder in _toolkits())
    return _find("libdevice", places).read_bytes()


def _libraries() -> Iterator[Path]:
    patterns = ("nvvm/bin/x64/nvvm64*.dll", "nvvm/bin/nvvm64*.dll", "bin/x86_64/nvvm64*.dll")
    if sys.platform != "win32":
        patterns = ("nvvm/lib64/libnvvm.so*", "lib/libnvvm.so*", "nvvm/lib/libnvvm.so*")
    for folder in _toolkits():
        for pattern in patterns:
            yield from sorted(folder.glob(pattern))


def _toolkits() -> Iterator[Path]:
    """Yield where CUDA's compiler may be: wheels first, which were installed together."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        # CUDA 13 wheels share one folder, CUDA 12 wheels have one each.
        yield from (Path(folder, part) for part in ("cu13", "cuda_nvcc"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")


def _find(what: str, places: Iterator[Path]) -> Path:
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ToolMissingError(
            f"{what} is neither installed as a wheel nor part of a CUDA toolkit here",
            hint='pip install "redlang[cuda]", or set CUDA_HOME to a CUDA toolkit',
        )
    return found
