"""What became of a kernel, for those who look: stages, generated text, machine code, sweeps.

As in `pipeline`, heavy modules are imported when something first needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from redlang.errors import ArgumentError, BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redlang.explanation import Explanation
    from redlang.pipeline import Machine
    from redlang.runtime.cuda_code import CudaCode, KernelStats
    from redlang.schedule.device import Device

STAGES = ("syntax", "program", "fuse", "plan", "loops")


class CacheInfo(NamedTuple):
    """What a kernel has compiled.

    Attributes:
        compilations: How often machine code was made.
        loaded: How often it was found on disk.
        launchers: The kinds of call seen: element types, layouts, libraries, devices.
        events: One line for each compilation or load: why, and how long it took.
    """

    compilations: int
    loaded: int
    launchers: int
    events: tuple[str, ...]


def cache_info(machine: Machine) -> CacheInfo:
    """Return what has been compiled for a kernel; see `Kernel.cache_info`."""
    compiled, loaded, events = machine.history.summary()
    return CacheInfo(compiled, loaded, machine.caller.launchers, events)


def explain(machine: Machine, stage: str | None) -> Explanation:
    """Return what became of a kernel; see `Kernel.explain`.

    Raises:
        ArgumentError: There is no such stage.
    """
    from redlang.explanation import explain as explained
    from redlang.frontend.unparse import unparse

    if stage is not None and stage not in STAGES:
        raise ArgumentError(f"stage={stage!r}: choose one of {', '.join(map(repr, STAGES))}")
    program = machine.program
    syntax = unparse(machine.caller.declared.syntax)
    compiler = machine.compiler(program)
    extents = machine.caller.latest.extents
    if not machine.caller.latest.device.startswith("cuda"):
        unit = machine.caller.latest.layout
        return explained(syntax, program, compiler, extents, stage, unit=unit)
    gpu = machine.cuda_compiler(program, _device(machine))
    return explained(syntax, program, compiler, extents, stage, gpu.shown)


def suppose(machine: Machine, arguments: Mapping[str, object]) -> None:
    """Let explanations speak of a call with these arguments, which is checked and not run.

    Raises:
        RedlangError: The arguments do not fit the kernel.
    """
    call = machine.caller.examine((), arguments)
    extents = call.extents()
    order = tuple(extents[axis.name] for axis in call.program.axes)
    machine.caller.latest.noted = call.program, "cpu", order, {}


def _device(machine: Machine) -> Device:
    """Return the GPU of the last call, or the one at hand, or the one that plans default to."""
    from redlang.runtime.probe import probe
    from redlang.schedule.device import DEFAULT_DEVICE

    name = machine.caller.latest.device
    number = int(name.partition(":")[2] or 0) if name.startswith("cuda") else 0
    return probe(number) or DEFAULT_DEVICE


def cuda_code(machine: Machine) -> CudaCode:
    """Return the compiled code of the last call on a GPU, or for f32 arrays of typical size."""
    from redlang.explanation import typical_extents
    from redlang.runtime.cuda_compiler import cuda_arrays

    compiler = machine.cuda_compiler(machine.program, _device(machine))
    if compiler.last is not None:
        return compiler.last
    program = compiler.compiler.program
    extents = machine.caller.latest.extents or typical_extents(program)
    return compiler.find(extents, cuda_arrays(program, extents))


def ptx(machine: Machine) -> str:
    """Return the PTX text of every kernel; see `Kernel.ptx`."""
    return "\n".join(kernel.ptx for kernel in cuda_code(machine).kernels)


def stats(machine: Machine) -> tuple[KernelStats, ...]:
    """Return the figures of every kernel; see `Kernel.stats`."""
    from redlang.runtime.cuda_code import kernel_stats

    return kernel_stats(cuda_code(machine), _device(machine))


def source(machine: Machine, target: str) -> str:
    """Return generated text; see `Kernel.source`.

    Raises:
        BackendError: There is no such target.
    """
    from redlang.codegen.cpu import emit

    if target == "cuda":
        return "\n\n".join(kernel.text.source for kernel in cuda_code(machine).kernels)
    if target != "cpu":
        raise BackendError(f"there is no target {target!r} here", hint="ask for 'cpu' or 'cuda'")
    compiler = machine.compiler(machine.program)
    unit = machine.caller.latest.layout
    loops = compiler.planner.loops(compiler.choice(_extents(machine), unit))
    return emit(loops, unit, machine.caller.declared.source).text


def sweeps(machine: Machine) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]:
    """Return the axes and stages of each sweep, kernel by kernel."""
    compiler = machine.compiler(machine.program)
    extents = _extents(machine)
    return tuple(
        tuple((", ".join(sweep.axes), sweep.stages) for sweep in nest.sweeps)
        for nest in compiler.nests(extents)[0]
        if nest.sweeps
    )


def _extents(machine: Machine) -> Mapping[str, int]:
    """Return the extents of the last call, or typical ones."""
    from redlang.explanation import typical_extents

    return machine.caller.latest.extents or typical_extents(machine.program)


def html(kernel: object) -> str | None:
    """Return how a notebook shows a kernel: by its text."""
    text = getattr(kernel, "text", "")
    return f"<pre>{escape(text)}</pre>" if text else None
