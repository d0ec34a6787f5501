"""From a normalised program to cubins: plans by shape class, code by plan, both kept on disk.

A call's extents, strides and addresses are reduced to classes first. Plans are made for the
classes, and code for the plan and what the classes guarantee, so that another length of the same
class finds everything made.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from redlang.codegen.cuda.chained import chained
from redlang.codegen.cuda.kernel_text import KernelText
from redlang.codegen.cuda.matrix_text import MatrixText, UnsuitedError
from redlang.codegen.cuda.pointed import with_pointers
from redlang.errors import BackendError, InternalError
from redlang.ir.loops import Loops
from redlang.ir.program import ArrayParam, Program
from redlang.runtime import cuda_tuning
from redlang.runtime.cache import digest, disk, keep, unpickled, versions
from redlang.runtime.compiler import Compiler
from redlang.runtime.cuda_classes import Known, alignment_of, element_sizes, unit_axis
from redlang.runtime.cuda_code import (
    CudaCode,
    CudaKernel,
    Text,
    filled,
    is_chained,
    kernel_stats,
    leaner,
)
from redlang.runtime.cuda_course import Arrays
from redlang.runtime.cuda_texts import texts_of
from redlang.runtime.matrix_choice import is_last_matrix, likely, with_matrices
from redlang.runtime.planner import Form
from redlang.schedule.device import Device
from redlang.schedule.estimates import crowd, early
from redlang.schedule.facts import Layout
from redlang.schedule.lower import lower
from redlang.schedule.model import segments
from redlang.schedule.parts import Part
from redlang.schedule.plan import Plan
from redlang.schedule.plan_text import plan_text
from redlang.schedule.search import (
    Choice,
    Ranked,
    ShapeClass,
    following,
    layout_class,
    search,
    shape_class,
)
from redlang.schedule.views import all_extents, all_strides, base_of
from redlang.targets import toolchain
from redlang.targets.assembler import ToolMissingError
from redlang.targets.toolchain import Binary

logger = logging.getLogger("redlang.compile")

HARMLESS_SPILLS = 48
"""Bytes that a kernel may spill: what lives across its loops, and is read after them."""
SPILL_FREE = 1.15
"""How much longer a plan may take that spills nothing than one that spills so little."""
SPILLED, LINES = 128, 6000
"""Further bytes that make a plan take as much longer again as its estimate, and lines of text of
plans that spill, after which the best of them is taken."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why chosen plans are not used.

    Attributes:
        nest: The number of the nest at fault.
        why: What is wrong with its plan.
        spill_bytes, lines: What it spills, and how long the text of its kernel is.
    """

    nest: int
    why: str
    spill_bytes: int = 0
    lines: int = 0


class CudaCompiler:
    """Everything between a normalised program and machine code for one kind of GPU."""

    def __init__(self, compiler: Compiler, device: Device) -> None:
        """Compile what `compiler` derives, for `device`."""
        self.compiler = compiler
        self.device = device
        self._choices: dict[object, Choice] = {}
        self._codes: dict[object, CudaCode | None] = {}
        self._binaries: dict[str, Binary] = {}
        self._compilations = 0
        # Code that every call runs, whatever its class: measurements set it.
        self.forced: CudaCode | None = None
        self.last: CudaCode | None = None
        self.last_choice: Choice | None = None
        self.last_known: Known | None = None

    # Plans ------------------------------------------------------------------------------------

    def layout(
        self, form: Form, shape: ShapeClass, arrays: Arrays, extents: Mapping[str, int]
    ) -> Layout:
        """Return the class of a call's layout."""
        sizes = element_sizes(form.program)
        unit = {n: unit_axis(strides, extents) for n, strides in arrays.strides.items()}
        alignment = {
            name: alignment_of(
                sizes[name], strides, arrays.addresses[name], unit[name], extents, shape
            )
            for name, strides in arrays.strides.items()
        }
        return layout_class(Layout(unit, alignment), shape, sizes)

    def choice(self, form: Form, extents: Mapping[str, int], arrays: Arrays) -> Choice:
        """Return the ranked plans of a call's class, from memory, from disk, or found."""
        shape = shape_class(form.program, form.nests, extents)
        layout = self.layout(form, shape, arrays, extents)
        units, alignments = tuple(layout.unit.items()), tuple(layout.alignment.items())
        key = (form.name, form.nests, shape, units, alignments)
        if key not in self._choices:
            kernel = (repr(self.compiler.program), repr(self.compiler.options))
            parts = (*kernel, repr(key), repr(self.device))
            name = digest("cuda choice", *parts, *versions())
            store = disk()
            found = unpickled(store, name, Choice)
            if found is None:
                found = search(form.program, form.nests, form.apart, shape, layout, self.device)
                found = replace(found, form=form.name)
                keep(store, name, found)
            self._choices[key] = found
        return self._choices[key]

    # Code -------------------------------------------------------------------------------------

    def classify(
        self, extents: Mapping[str, int], arrays: Arrays, form: Form | None = None
    ) -> tuple[Choice, Known]:
        """Return the ranked plans for a call, and what is known of all calls of its class.

        Args:
            extents: Those of the call.
            arrays: What is known of its arrays.
            form: A form of the program; the one of the last call, or the first one.
        """
        if form is None:
            forms = self.compiler.planner.forms(extents, arrays.strides)
            last = None if self.last_choice is None else self.last_choice.form
            form = next((form for form in forms if form.name == last), forms[0])
        extents = all_extents(form.program, extents)
        strides = all_strides(form.program, arrays.strides, extents)
        addresses = {name: arrays.addresses.get(base_of(name), 0) for name in strides}
        arrays = replace(arrays, strides=strides, addresses=addresses)
        choice = self.choice(form, extents, arrays)
        choice = with_matrices(form, self.compiler.options, choice, extents, self.device)
        choice = cuda_tuning.reordered(choice, self.record_key(choice))
        sizes = element_sizes(form.program)
        shape, layout = choice.shape, choice.layout
        return choice, Known(form.program, shape, layout, extents, arrays, self.device, sizes)

    def record_key(self, choice: Choice) -> str:
        """Return the name of what was measured for a class."""
        options = repr(replace(self.compiler.options, tune=False))
        program = repr(self.compiler.program)
        return cuda_tuning.record_key(program, options, choice, repr(self.device))

    def find(self, extents: Mapping[str, int], arrays: Arrays) -> CudaCode:
        """Return code for a call, from memory, from disk, or made."""
        if self.forced is not None:
            return self.forced
        forms = [
            (form.weight, *self.classify(extents, arrays, form))
            for form in self.compiler.planner.forms(extents, arrays.strides)
        ]
        forms.sort(key=lambda form: form[0] * form[1].time_us)
        limits = [*(weight * choice.time_us for weight, choice, _ in forms[1:]), math.inf]
        for (_, choice, known), limit in zip(forms, limits, strict=True):
            first = likely(choice)
            key = (
                choice.form,
                choice.shape.exact,
                tuple((p.plan, p.threads, p.across, p.matrix, p.classes) for p in first),
                tuple(
                    (is_chained(e, self.device), crowd(e, self.device), e.registers)
                    for r in choice.best
                    for e in r.estimates
                ),
                self.device.sms,
                tuple(known.key(part) for part in first),
            )
            if key not in self._codes:
                self._codes[key] = self._code(choice, known, repr(key), extents, limit)
            code = self._codes[key]
            if code is not None:
                break
        assert code is not None, "nothing is slower than without end"
        self.last, self.last_choice, self.last_known = code, choice, known
        return code

    def shown(self, extents: Mapping[str, int]) -> tuple[str, Loops]:
        """Return the plan of the last call in words, or one for row-major arrays, and its loops."""
        if self.last is None:
            self.find(extents, cuda_arrays(self.compiler.program, extents))
        assert self.last is not None
        assert self.last_choice is not None
        figures: dict[int, list[str]] = {}
        stats = kernel_stats(self.last, self.device)
        for kernel, s in zip(self.last.kernels, stats, strict=True):
            figures.setdefault(kernel.part, []).append(
                f"{s.name}: {s.registers} registers, {s.spill_bytes} bytes spilled, "
                f"{s.shared_bytes} bytes shared, {s.occupancy.blocks} blocks an SM"
            )
        loops, parts = self.last.loops, self.last.parts
        choice = self.last_choice
        return plan_text(loops.program, extents, choice, self.device, parts, figures), loops

    def words(self, choice: Choice, extents: Mapping[str, int]) -> str:
        """Return what runs a call, in words."""
        sizes = ", ".join(f"{axis}={extent}" for axis, extent in extents.items())
        families = ", ".join(r.candidate.family for r in choice.best)
        return f"{self.compiler.program.name} for {sizes}; {families}; sm_{self.device.target}"

    def _code(
        self, choice: Choice, known: Known, key: str, extents: Mapping[str, int], limit: float
    ) -> CudaCode | None:
        """Return code from disk, or made; None where what can be made is slower than `limit`."""
        start = time.perf_counter()
        parts = (repr(self.compiler.program), repr(self.compiler.options), key, self.device.target)
        name = digest("cuda code", *parts, *versions(), *cuda_versions())
        store = disk()
        what = self.words(choice, extents)
        found = unpickled(store, name, CudaCode)
        if found is not None:
            self.compiler.history.note(what, start, compiled=False)
            return found
        before = self._compilations
        made = self._make(choice, known, limit)
        if made is not None:
            keep(store, name, made)
            self.compiler.history.note(what, start, compiled=self._compilations > before)
        return made

    def _make(self, choice: Choice, known: Known, limit: float) -> CudaCode | None:
        """Compile the best plan of each nest that the compiler does not spill, or hardly.

        None is returned where such plans take longer than `limit` microseconds. One that spills is
        taken where others take much longer, or are not found soon.
        """
        numbers = [0] * len(choice.ranked)
        refused: list[str] = []
        second, second_us, lines = None, math.inf, 0  # the best plans that spill
        while all(n < len(options) for options, n in zip(choice.ranked, numbers, strict=True)):
            chosen = [options[n] for options, n in zip(choice.ranked, numbers, strict=True)]
            if _time_us(chosen) > second_us or lines > LINES:
                break
            if refused and _time_us(chosen) > limit:
                return None
            # A matrix kernel that spills is still faster than one without the tensor core.
            last = any(map(is_last_matrix, choice.ranked, numbers))
            code, fault = self.build(chosen, known, strict=not last)
            if code is not None:
                return replace(code, refused=tuple(refused))
            assert fault is not None
            family = chosen[fault.nest].candidate.family
            name = self.compiler.program.name
            logger.info("a plan is given up: %s of %s: %s", family, name, fault.why)
            refused.append(f"{family}: {fault.why}")
            if fault.spill_bytes:
                lines += fault.lines
                further = max(0, fault.spill_bytes - HARMLESS_SPILLS) / SPILLED
                spilled_us = (SPILL_FREE + further) * _time_us(chosen)
                if spilled_us < second_us:
                    second, second_us = chosen, spilled_us
            options = choice.ranked[fault.nest]
            numbers[fault.nest] = following(options, numbers[fault.nest], fault.spill_bytes)
        code = None if second is None else self.build(second, known, strict=False)[0]
        if code is None:
            raise BackendError(
                f"no plan of {self.compiler.program.name} compiles for {self.device.target}",
                hint="; ".join(refused[-3:]),
            )
        return replace(code, refused=tuple(refused))

    def build(
        self, chosen: list[Ranked], known: Known, *, strict: bool = True
    ) -> tuple[CudaCode | None, Fault | None]:
        """Compile chosen plans; else return what is at fault.

        Args:
            chosen: One candidate for each nest.
            known: What is known of the arrays.
            strict: Whether spills and slow instructions are faults.
        """
        parts = [(number, part) for number, r in enumerate(chosen) for part in r.candidate.parts]
        estimates = [estimate for r in chosen for estimate in r.estimates]
        plan = Plan(tuple(part.plan for _, part in parts))
        loops = lower(known.program, tuple(part.nest for _, part in parts), plan)
        kernels = list(loops.kernels)
        made: list[CudaKernel] = []
        compiled: list[Part] = []
        for place, (number, part) in enumerate(parts):
            own = [kernels.pop(0)]
            if part.plan.kind == "multi-segment":
                own.append(kernels.pop(0))
            try:
                pointed = known.arrays.pointed
                texts = texts_of(loops, own, part, known.classes(part))
                texts = [with_pointers(text, pointed) for text in texts]
                if is_chained(estimates[place], self.device):
                    texts = [chained(text, self.device) for text in texts]
                most = max(text.shared_bytes for text in texts)
                if most > self.device.sm.shared_bytes_per_block:
                    return None, Fault(number, f"needs {most} bytes of shared memory")
                pairs = [(text, self._binary(text)) for text in texts]
                if part.matrix is None and not part.across:
                    expected = estimates[place].registers
                    pairs = [self._leaner(*both, expected) for both in pairs]
            except ToolMissingError:
                raise
            except UnsuitedError as error:
                return None, Fault(number, str(error))
            except (InternalError, BackendError) as error:
                logger.warning("a plan does not compile: %s", error)
                return None, Fault(number, f"{type(error).__name__}: {error}")
            spaces = [s for text in texts if isinstance(text, MatrixText) for s in text.spaces]
            loops = replace(loops, workspaces=(*loops.workspaces, *spaces))
            for text, binary in pairs:
                assembly = binary.assembly
                allowed = 0 if part.matrix is None else HARMLESS_SPILLS
                if strict and (assembly.spill_bytes > allowed or assembly.slow):
                    spilled, lines = assembly.spill_bytes, text.source.count("\n")
                    return None, Fault(number, f"spills {spilled} bytes", spilled, lines)
                shared = text.shared_bytes + assembly.shared_bytes
                if shared > self.device.sm.shared_bytes_per_block:
                    return None, Fault(number, f"needs {shared} bytes of shared memory")
                kernel = CudaKernel(
                    text,
                    assembly.cubin,
                    binary.ptx,
                    assembly.registers,
                    assembly.spill_bytes,
                    shared,
                    place,
                )
                if text.follows and assembly.waits_first:
                    fits = kernel.occupancy(self.device).blocks
                    least = early(estimates[place], fits, self.device)
                    # The SMs are there already for what follows a kernel of the same call.
                    kernel = replace(kernel, early=0 if made else least)
                made.append(kernel)
            compiled.append(filled(part, made[-1], self.device))
        code = CudaCode(loops, tuple(compiled), tuple(made), self.device.target)
        return code, None

    def _leaner(self, text: Text, binary: Binary, expected: int) -> tuple[Text, Binary]:
        """Return a kernel of which an SM holds more blocks, if one spills nothing."""
        if binary.assembly.spill_bytes:
            return text, binary
        for other in leaner(text, binary.assembly.registers, expected, self.device):
            made = self._binary(other)
            if not made.assembly.spill_bytes:
                return other, made
        return text, binary

    def _binary(self, text: Text) -> Binary:
        """Return machine code of a text: classes that differ often have one text."""
        cluster = text.cluster if isinstance(text, KernelText) else 1
        shape = text.threads, text.min_blocks, cluster
        own = text.source, text.entry, repr((text.kinds, shape)), self.device.target
        key = digest("cuda binary", *own, *versions(), *cuda_versions())
        if key not in self._binaries:
            store = disk()
            found = unpickled(store, key, toolchain.Binary)
            if found is None:
                found = toolchain.build(
                    text.source,
                    text.entry,
                    text.kinds,
                    self.device.target,
                    max_threads=text.threads,
                    min_blocks=text.min_blocks,
                    cluster=cluster,
                )
                self._compilations += 1
                keep(store, key, found)
            self._binaries[key] = found
        return self._binaries[key]

    def segments(self, code: CudaCode, extents: Mapping[str, int]) -> dict[str, int]:
        """Return into how many segments each cut sweep goes, by the number of its part."""
        every = all_extents(code.loops.program, extents)
        return {
            str(number): segments(part, every, self.device)
            for number, part in enumerate(code.parts)
        }


def _time_us(chosen: Iterable[Ranked]) -> float:
    return sum(ranked.time_us for ranked in chosen)


def cuda_versions() -> tuple[str, ...]:
    """Return what generated CUDA code depends on besides its text."""
    return (toolchain.installed_versions(),)


def cuda_arrays(program: Program, extents: Mapping[str, int]) -> Arrays:
    """Return row-major, aligned arrays: what text is shown for where there was no call."""
    axes = {p.name: p.axes for p in program.params if isinstance(p, ArrayParam)}
    axes |= {f"result.{i}": r.axes for i, r in enumerate(program.results)}
    strides = {
        name: {a: prod(extents[b] for b in order[i + 1 :]) for i, a in enumerate(order)}
        for name, order in axes.items()
    }
    return Arrays(strides, dict.fromkeys(axes, 0))
