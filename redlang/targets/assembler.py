"""PTX → cubin with `ptxas`, and what it reports: registers, spills, shared memory, warnings."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from redlang.errors import BackendError
from redlang.targets.machine_code import waits_first


class ToolMissingError(BackendError):
    """A part of the compiler for GPUs is missing or broken: nothing at all can be compiled."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A cubin and `ptxas`'s figures for its one kernel.

    Attributes:
        cubin: The machine code.
        registers: Registers a thread.
        spill_bytes: Bytes stored to and loaded from local memory for lack of registers.
        stack_bytes: Local memory a thread, spills included.
        shared_bytes: Static shared memory a block.
        slow: The compiler's `Potential Performance Loss` notes (serialised tensor-core
            instructions): a plan that has any is not used.
        log: Everything that `ptxas` printed.
        waits_first: Whether it certainly waits for the kernels before it ahead of all loads.
    """

    cubin: bytes = field(repr=False)
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    slow: tuple[str, ...]
    log: str = field(repr=False)
    waits_first: bool = False


def assemble(ptx: str, target: str, *, verbose_name: str = "kernel") -> Assembly:
    """Assemble PTX text that holds one kernel.

    Args:
        ptx: The text.
        target: Compute capability, as `"9.0a"`.
        verbose_name: What messages call the kernel.

    Raises:
        BackendError: `ptxas` is missing or refuses the text.
    """
    arch = "sm_" + target.replace(".", "")
    with tempfile.TemporaryDirectory(prefix="redlang-") as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [find_ptxas(), "-v", "-O3", f"-arch={arch}", "-o", str(binary), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise BackendError(
                f"ptxas refuses {verbose_name} for {arch}: {_first_error(log)}",
                hint=f"{command[0]} is {ptxas_version()}; the target may be too new for it",
            )
        cubin = binary.read_bytes()
        return replace(read_report(log, cubin), waits_first=waits_first(cubin))


def read_report(log: str, cubin: bytes) -> Assembly:
    """Parse the figures in a log of `ptxas -v` for one kernel."""
    # A kernel that calls functions has properties for each; spills add up, registers are the
    # entry's ("Used" is printed for entries only).
    frames = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    return Assembly(
        cubin,
        registers=max(_numbers(r"Used (\d+) registers", log)),
        spill_bytes=sum(int(stores) + int(loads) for _, stores, loads in frames),
        stack_bytes=max((int(stack) for stack, _, _ in frames), default=0),
        shared_bytes=max(_numbers(r"(\d+) bytes smem", log)),
        slow=tuple(line for line in log.splitlines() if "Potential Performance Loss" in line),
        log=log,
    )


def _numbers(pattern: str, log: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, log)] or [0]


def _first_error(log: str) -> str:
    for line in log.splitlines():
        if "error" in line or "fatal" in line:
            return line.split(";", 1)[-1].strip()
    return log.strip()[:300] or "no message"


@functools.cache
def find_ptxas() -> str:
    """Return the path of `ptxas`: from the `nvidia-cuda-nvcc` wheel, else from a CUDA toolkit.

    The wheel comes first because it was installed together with the rest of the compiler.
    """
    for candidate in _candidates():
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise ToolMissingError(
        "ptxas is neither installed as a wheel nor on PATH",
        hint='pip install "redlang[cuda]" nvidia-cuda-nvcc, or set CUDA_HOME to a CUDA toolkit',
    )


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        # CUDA 13 wheels share one folder, CUDA 12 wheels have one each.
        for part in ("cu13", "cuda_nvcc"):
            yield Path(folder, part, "bin", "ptxas")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            yield Path(os.environ[variable], "bin", "ptxas")
    if found := shutil.which("ptxas"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/ptxas")


@functools.cache
def ptxas_version() -> str:
    """Return the release of the `ptxas` in use, as `"13.0.88"`."""
    done = subprocess.run([find_ptxas(), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    return match[1] if match else "of unknown version"
