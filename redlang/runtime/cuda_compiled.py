"""Compiled kernels on a GPU: what a warm call looks up, packs and launches.

A launcher knows extents, strides and addresses, and asks for the *run* that fits them. A run is a
closure that launches: everything that follows from extents is a constant in it, so that a warm call
is one look-up, one allocation of results, and one call of the launch stub for each kernel. Nothing
waits for the device.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import Address, Counters, KernelText, Number, Pointer
from redlang.codegen.cuda.matrix_text import MatrixParameter, MatrixText, TensorMap
from redlang.ir.program import Program
from redlang.ir.types import U8
from redlang.runtime import cuda_tuning
from redlang.runtime.cache import BUILDING
from redlang.runtime.counters import StreamCounters, counters_of
from redlang.runtime.cuda_classes import Arrays, Known
from redlang.runtime.cuda_code import CudaCode
from redlang.runtime.cuda_compiler import CudaCompiler
from redlang.runtime.driver import Driver, stream_text
from redlang.runtime.launcher import Launch, Stored
from redlang.runtime.matrix_calls import map_maker
from redlang.runtime.memory import Library
from redlang.schedule.in_place import in_place
from redlang.schedule.plan import segment_axis
from redlang.schedule.search import Choice, Ranked

KEPT_CALLS = 4096
"""Sets of extents, strides and alignments whose runs one launcher remembers."""

Run: TypeAlias = Callable[..., None]
"""`run(stream, *addresses, *scalars)`: addresses of inputs, then results."""

_space_alignment = 256


@dataclass(slots=True, eq=False)
class CudaCompiled:
    """The backend that launches cubins on one device.

    Attributes:
        compiler: Finds code.
        driver: Loads and launches it.
        number: The device.
    """

    compiler: CudaCompiler
    driver: Driver
    number: int
    _loaded: dict[int, tuple[CudaCode, list[Callable[..., int]]]] = field(default_factory=dict)
    _find: Callable[..., CudaCode] | None = None

    @property
    def backend(self) -> CudaCompiled:
        """Return this backend."""
        return self

    def may_alias(self, result: int, array: str, extents: Mapping[str, int]) -> bool:
        """Tell whether a result may be stored over an input, element by element."""
        if self._find is None:
            return False
        code = self._find(extents)
        part = next(p for p in code.parts if result in p.nest.results)
        axes = set(code.loops.results[result].axes)
        threads = part.threads
        # Threads that hold copies of an element would read it after another has stored it.
        alone = all(s.axis in axes for s in threads.spreads if s.threads > 1)
        return (
            alone and part.plan.kind in ("map", "on-chip") and in_place(code.loops, result, array)
        )

    def emit(self, launch: Launch) -> None:
        """Add the lines that find a run and call it."""
        stored = (*launch.inputs, *launch.outputs)
        caller = _Calls(self, launch, stored)
        self._find = caller.code_for
        library = stored[0].library
        stream, names = stream_text(library, self.number)
        launch.names |= names | {"runs": caller, "find_run": caller.find}
        parts = [launch.extents.known[axis.name] for axis in launch.program.axes]
        for x in stored:
            if not x.contiguous and x.dims:
                strides = [f"t{x.variable}_{i}" for i in range(len(x.dims))]
                given = x.library.strides_text.format(x.variable)
                launch.lines.append(f"{''.join(f'{name}, ' for name in strides)} = {given}")
                parts += strides
        addresses = [x.address for x in stored]
        launch.lines += [
            f"low = ({' | '.join(addresses)}) & 15",
            "if low:",
            f"    low = ({''.join(f'{a} & 15, ' for a in addresses)})",
            f"key = ({', '.join([*parts, 'low'])},)",
            "run = runs.get(key)",
            "if run is None:",
            f"    run = find_run(key, {stream})",
        ]
        arguments = [stream, *addresses, *launch.scalars.values()]
        launch.lines.append(f"run({', '.join(arguments)})")


class _Calls(OrderedDict[tuple[Any, ...], Run]):
    """Runs of one launcher by extents, strides and alignment."""

    def __init__(self, backend: CudaCompiled, launch: Launch, stored: Sequence[Stored]) -> None:
        super().__init__()
        self._backend = backend
        self._program: Program = launch.program
        self._axes = [axis.name for axis in launch.program.axes]
        self._stored = tuple(stored)
        self._scalars = tuple(launch.scalars)
        self._device = launch.device
        self._pointed = {name: dtype.name for name, dtype in launch.pointed.items()}

    def find(self, key: tuple[Any, ...], stream: int) -> Run:
        """Return the run for a key not seen before.

        Raises:
            BackendError: Code must be loaded, and the stream is being captured.
        """
        with BUILDING:
            run = self.get(key)
            if run is None:
                extents, arrays = self._read(key)
                run = self._make(key, extents, arrays, stream)
                while len(self) >= KEPT_CALLS:
                    self.popitem(last=False)
                self[key] = run
            return run

    def code_for(self, extents: Mapping[str, int]) -> CudaCode:
        """Return code for row-major, aligned arrays of these extents."""
        strides = {x.name: row_major(x, extents) for x in self._stored}
        arrays = Arrays(strides, dict.fromkeys(strides, 0), self._pointed)
        return self._backend.compiler.find(extents, arrays)

    def _read(self, key: tuple[Any, ...]) -> tuple[dict[str, int], Arrays]:
        """Return what a key says."""
        *numbers, low = key
        extents = dict(zip(self._axes, numbers, strict=False))
        given = iter(numbers[len(self._axes) :])
        strides = {}
        for x in self._stored:
            if x.contiguous or not x.dims:
                strides[x.name] = row_major(x, extents)
                continue
            steps = [next(given) for _ in x.dims]
            size = x.dtype.bytes if x.library.strides_in_bytes else 1
            strides[x.name] = dict(
                pair
                for dim, step in zip(x.dims, steps, strict=True)
                for pair in _dim_strides(dim.axes, step // size, extents)
            )
        lows = low if isinstance(low, tuple) else (0,) * len(self._stored)
        addresses = {x.name: offset for x, offset in zip(self._stored, lows, strict=True)}
        return extents, Arrays(strides, addresses, self._pointed)

    def _make(
        self, key: tuple[Any, ...], extents: Mapping[str, int], arrays: Arrays, stream: int
    ) -> Run:
        compiler = self._backend.compiler
        run = self._run(compiler.find(extents, arrays), extents, arrays, stream)
        if not compiler.compiler.options.tune or compiler.forced is not None:
            return run
        choice, known = compiler.classify(extents, arrays)
        if choice.measured or all(len(options) < 2 for options in choice.ranked):
            return run
        return self._on_trial(key, run, choice, known)

    def _on_trial(self, key: tuple[Any, ...], first: Run, choice: Choice, known: Known) -> Run:
        """Return a run that measures plans at its first call, and gives way to the best."""
        backend, name = self._backend, self._program.name
        driver, number = backend.driver, backend.number
        inputs = sum(not x.name.startswith("result.") for x in self._stored)

        def trial(stream: int, *arguments: Any) -> None:  # noqa: ANN401  # addresses, scalars
            results = arguments[inputs : len(self._stored)]
            # What stores over its inputs cannot run twice.
            if set(results) & set(arguments[:inputs]) or driver.is_capturing(stream):
                first(stream, *arguments)
                return

            def make(chosen: list[Ranked]) -> Run | None:
                code, _ = backend.compiler.build(chosen, known)
                if code is None:
                    return None
                return self._run(code, known.extents, known.arrays, stream)

            with BUILDING:
                library = self._stored[0].library
                scratch = library.empty((cuda_tuning.DELAY_BYTES,), U8, self._device)
                place = library.memory(scratch).address
                with cuda_tuning.stopwatch(driver, number, stream, place, arguments) as time_of:
                    record = cuda_tuning.measure(name, choice, make, time_of)
                cuda_tuning.RECORDS.set(backend.compiler.record_key(choice), record)
                run = self._run(
                    backend.compiler.find(known.extents, known.arrays),
                    known.extents,
                    known.arrays,
                    stream,
                )
                self[key] = run
            run(stream, *arguments)

        return trial

    def _run(self, code: CudaCode, extents: Mapping[str, int], arrays: Arrays, stream: int) -> Run:
        backend = self._backend
        if id(code) not in backend._loaded:
            name = self._program.name
            backend.driver.require_no_capture(backend.number, stream, name)
            backend._loaded[id(code)] = code, load(code, backend.driver, backend.number)
        launches = backend._loaded[id(code)][1]
        library = self._stored[0].library
        sms = backend.compiler.device.sms
        maker = _RunMaker(code, self._stored, self._scalars, library, self._device, sms)
        cuts = backend.compiler.segments(code, extents)
        counters = counters_of(backend.driver, library, backend.number)
        return maker.make(extents, arrays, cuts, launches, backend.driver, counters)


def load(code: CudaCode, driver: Driver, number: int) -> list[Callable[..., int]]:
    """Load the kernels of a plan onto a device; return their launch functions."""
    return [
        driver.load(
            kernel.cubin,
            kernel.text.entry,
            number,
            threads=kernel.text.threads,
            shared_bytes=kernel.text.shared_bytes,
            kinds=kernel.text.kinds,
        ).launch
        for kernel in code.kernels
    ]


def row_major(x: Stored, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the strides of a row-major array by axis."""
    found: list[tuple[str, int]] = []
    step = 1
    for dim in reversed(x.dims):
        found += reversed(_dim_strides(dim.axes, step, extents))
        whole = f"({' '.join(dim.axes)})"
        ragged = len(dim.axes) > 1 and whole in extents and not x.padded
        step *= extents[whole] if ragged else prod(extents[axis] for axis in dim.axes)
    return dict(reversed(found))


def _dim_strides(
    axes: Sequence[str], step: int, extents: Mapping[str, int]
) -> list[tuple[str, int]]:
    """Return the strides of the axes that share a dimension, outermost first."""
    return [
        (axis, step * prod(extents[inner] for inner in axes[i + 1 :]))
        for i, axis in enumerate(axes)
    ]


def blocks(text: KernelText | MatrixText, extents: Mapping[str, int], cuts: int, sms: int) -> int:
    """Return the blocks of a launch on a device of `sms` SMs."""
    units = prod(-(-extents[axis] // tile) for axis, tile in text.grid)
    if isinstance(text, MatrixText) and text.persistent:
        return min(units, sms * text.min_blocks)
    cluster = text.cluster if isinstance(text, KernelText) else 1
    return -(-units // text.units) * cluster * (cuts if text.segments else 1)


@dataclass(frozen=True, slots=True)
class _RunMaker:
    """Writes the text of a run; what depends on extents is bound when a run is made."""

    code: CudaCode
    stored: tuple[Stored, ...]
    scalars: tuple[str, ...]
    library: Library
    device: str
    sms: int

    def make(
        self,
        extents: Mapping[str, int],
        arrays: Arrays,
        cuts: Mapping[str, int],
        launches: Sequence[Callable[..., int]],
        driver: Driver,
        counters: StreamCounters,
    ) -> Run:
        """Return the run for some extents and strides."""
        every = dict(extents)
        for number, part in enumerate(self.code.parts):
            if part.plan.segmented is not None:
                index = segment_axis(part.plan.segmented)
                every[index] = max(every.get(index, 1), cuts[str(number)])
        spaces, size = self._spaces(every)
        names: dict[str, object] = {"fail": functools.partial(_fail, driver)}
        constants: dict[int, str] = {}

        def constant(value: int) -> str:
            return constants.setdefault(value, f"c{len(constants)}")

        body: list[str] = []
        counted = 0
        for number, (kernel, launch) in enumerate(zip(self.code.kernels, launches, strict=True)):
            cut = cuts[str(kernel.part)]
            count = blocks(kernel.text, extents, cut, self.sms)
            if count == 0:
                continue
            own = dict(every)
            if kernel.text.segments:
                own[kernel.text.segments] = cut
                if Counters() in kernel.text.parameters:
                    posted = kernel.text.posted if isinstance(kernel.text, KernelText) else 0
                    counted = max(counted, 2 * count * posted if posted else count // cut)
            if isinstance(kernel.text, MatrixText) and kernel.text.queued:
                counted = max(counted, 1)
            names[f"launch{number}"] = launch
            values = []
            for p in kernel.text.parameters:
                if isinstance(p, TensorMap):
                    place = next(i for i, x in enumerate(self.stored) if x.name == p.array)
                    name, dtype = f"map{len(names)}", self.stored[place].dtype
                    names[name] = map_maker(driver, p, dtype, extents, arrays.strides[p.array])
                    values.append(f"{name}(a{place})")
                else:
                    values.append(self._value(p, own, arrays, spaces, constant))
            call = f"launch{number}({', '.join(['stream', constant(count), *values])})"
            body += [f"status = {call}", "if status:", "    fail(status)"]
        lines: list[str] = []
        if size:
            placed = {"shape": f"({constant(size)},)"}
            for key, value in self.library.empty_names(U8, self.device).items():
                placed[key] = f"space_{key}"
                names[placed[key]] = value
            lines.append(f"space = {self.library.empty_text.format_map(placed)}")
            lines.append(f"q = {self.library.address_text.format('space')}")
        elif spaces:
            lines.append("q = 0")
        if counted:
            names["counters"] = counters.get
            lines.append(f"counter = counters(stream, {constant(counted)})")
        names |= {name: value for value, name in constants.items()}
        return self._function(names, [*lines, *body])

    def _function(self, names: Mapping[str, object], body: Sequence[str]) -> Run:
        given = [f"a{i}" for i in range(len(self.stored))]
        given += [f"s{i}" for i in range(len(self.scalars))]
        text = _factory_text(tuple(names), tuple(given), tuple(body))
        run: Run = _factory(text, self.code.loops.name)(*names.values())
        return run

    def _spaces(self, extents: Mapping[str, int]) -> tuple[dict[str, int], int]:
        """Return where each workspace that a kernel uses begins, and the bytes of all."""
        used = {
            p.name for k in self.code.kernels for p in k.text.parameters if isinstance(p, Address)
        }
        places, total = {}, 0
        for space in self.code.loops.workspaces:
            if space.name in used:
                places[space.name] = total
                size = prod(extents[axis] for axis in space.axes) * space.dtype.bytes
                total += -(-size // _space_alignment) * _space_alignment
        return places, total

    def _value(
        self,
        parameter: MatrixParameter,
        extents: Mapping[str, int],
        arrays: Arrays,
        spaces: Mapping[str, int],
        constant: Callable[[int], str],
    ) -> str:
        match parameter:
            case Address(name) if name in spaces:
                return f"q + {constant(spaces[name])}"
            case Address(name):
                return f"a{next(i for i, x in enumerate(self.stored) if x.name == name)}"
            case Extent(axis):
                return constant(extents[axis])
            case Stride(array, axis):
                return constant(arrays.strides[array][axis])
            case Number(name) | Pointer(name):
                return f"s{self.scalars.index(name)}"
            case Counters():
                return "counter"
            case TensorMap():
                raise AssertionError(parameter)


def _factory_text(names: tuple[str, ...], given: tuple[str, ...], body: tuple[str, ...]) -> str:
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
