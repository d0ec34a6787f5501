"""Compiled kernels on a GPU: what a warm call looks up, packs and launches.

A launcher knows extents, strides and addresses, and asks for the *run* that fits them. A run is a
closure that launches: everything that follows from extents is a constant in it, so that a warm call
is one look-up, one allocation of results, and one call of the launch stub for each kernel. Nothing
waits for the device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from redlang.ir.extents import whole_name
from redlang.ir.program import Program
from redlang.ir.types import U8
from redlang.runtime.cache import BUILDING
from redlang.runtime.counters import counters_of
from redlang.runtime.cuda_course import Arrays, Course, Image, Run, bind, load
from redlang.runtime.cuda_finder import CudaFinder
from redlang.runtime.driver import Driver, stream_text
from redlang.runtime.launcher import Launch, Stored
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.runtime.cuda_classes import Known
    from redlang.runtime.cuda_code import CudaCode
    from redlang.schedule.search import Choice, Ranked

KEPT_LAYOUTS = 64
"""Sets of strides and alignments whose runs one launcher remembers for extents."""


@dataclass(slots=True, eq=False)
class CudaCompiled:
    """The backend that launches cubins on one device.

    Attributes:
        finder: Finds code.
        driver: Loads and launches it.
        number: The device.
    """

    finder: CudaFinder
    driver: Driver
    number: int
    _loaded: dict[tuple[Image, ...], list[Callable[..., int]]] = field(default_factory=dict)
    _find: Callable[..., CudaCode] | None = None

    @property
    def backend(self) -> CudaCompiled:
        """Return this backend."""
        return self

    def may_alias(self, result: int, array: str, extents: Mapping[str, int]) -> bool:
        """Tell whether a result may be stored over an input, element by element."""
        if self._find is None:
            return False
        from redlang.schedule.in_place import in_place  # noqa: PLC0415  (only where arrays overlap)

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
        launch.names |= names | {"runs_of": caller.runs_of}
        runs = launch.constant("runs_of(extents)")
        parts = []
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
            f"key = {', '.join([*parts, 'low'])}",
            f"run = {runs}.get(key)",
            "if run is None:",
            f"    run = {runs}.find(key, {stream})",
        ]
        arguments = [stream, *addresses, *launch.scalars.values()]
        launch.lines.append(f"run({', '.join(arguments)})")


class _Runs(OrderedDict[object, Run]):
    """Runs for some extents by strides and alignment: `low`, or a tuple that ends with it.

    `low` holds the lowest bits of each address, or is 0 where those are all 0.
    """

    def __init__(self, calls: _Calls, extents: tuple[int, ...]) -> None:
        super().__init__()
        self._calls = calls
        self._extents = extents

    def find(self, key: object, stream: int) -> Run:
        """Return the run for a key not seen before.

        Raises:
            BackendError: Code must be loaded, and the stream is being captured.
        """
        with BUILDING:
            run = self.get(key)
            if run is None:
                extents, arrays = self._calls.read(self._extents, key)
                run = self._calls.make(extents, arrays, stream, partial(self.__setitem__, key))
                while len(self) >= KEPT_LAYOUTS:
                    self.popitem(last=False)
                self[key] = run
            return run


class _Calls:
    """Makes the runs of one launcher."""

    def __init__(self, backend: CudaCompiled, launch: Launch, stored: Sequence[Stored]) -> None:
        self._backend = backend
        self._program: Program = launch.program
        self._axes = [axis.name for axis in launch.program.axes]
        self._stored = tuple(stored)
        self._scalars = tuple(launch.scalars)
        self._device = launch.device
        self._pointed = {name: dtype.name for name, dtype in launch.pointed.items()}

    def runs_of(self, extents: tuple[int, ...]) -> _Runs:
        """Return where runs for some extents are found."""
        return _Runs(self, extents)

    def code_for(self, extents: Mapping[str, int]) -> CudaCode:
        """Return code for row-major, aligned arrays of these extents."""
        strides = {x.name: row_major(x, extents) for x in self._stored}
        arrays = Arrays(strides, dict.fromkeys(strides, 0), self._pointed)
        return self._backend.finder.compiler.find(extents, arrays)

    def read(self, numbers: tuple[int, ...], key: object) -> tuple[dict[str, int], Arrays]:
        """Return what extents and a key of `_Runs` say."""
        extents = dict(zip(self._axes, numbers, strict=True))
        strided = any(x.dims and not x.contiguous for x in self._stored)
        *given, low = key if strided and isinstance(key, tuple) else (key,)
        steps_given = iter(given)
        strides = {}
        for x in self._stored:
            if x.contiguous or not x.dims:
                strides[x.name] = row_major(x, extents)
                continue
            steps = [next(steps_given) for _ in x.dims]
            size = x.dtype.bytes if x.library.strides_in_bytes else 1
            strides[x.name] = dict(
                pair
                for dim, step in zip(x.dims, steps, strict=True)
                for pair in _dim_strides(dim.axes, step // size, extents)
            )
        lows = low if isinstance(low, tuple) else (0,) * len(self._stored)
        addresses = {x.name: offset for x, offset in zip(self._stored, lows, strict=True)}
        return extents, Arrays(strides, addresses, self._pointed)

    def make(
        self,
        extents: Mapping[str, int],
        arrays: Arrays,
        stream: int,
        replace: Callable[[Run], None],
    ) -> Run:
        """Return a run; `replace` puts another one in its place."""
        finder = self._backend.finder
        words = [*(f"{x.name} {x.dtype.name}" for x in self._stored), *self._scalars]
        recalled = finder.recall(extents, arrays, words)
        if recalled is not None:
            return self._bound(*recalled, stream)
        compiler = finder.compiler
        code = compiler.find(extents, arrays)
        course = self._course(code, extents, arrays)
        finder.remember(extents, arrays, words, code, course)
        run = self._bound(code.images, course, stream)
        if not compiler.compiler.options.tune or compiler.forced is not None:
            return run
        choice, known = compiler.classify(extents, arrays)
        if choice.measured or all(len(options) < 2 for options in choice.ranked):
            return run
        return self._on_trial(run, choice, known, replace)

    def _on_trial(
        self, first: Run, choice: Choice, known: Known, replace: Callable[[Run], None]
    ) -> Run:
        """Return a run that measures plans at its first call, and gives way to the best."""
        from redlang.runtime import cuda_tuning  # noqa: PLC0415  (only where plans are measured)

        compiler, name = self._backend.finder.compiler, self._program.name
        driver, number = self._backend.driver, self._backend.number
        inputs = sum(not x.name.startswith("result.") for x in self._stored)

        def trial(stream: int, *arguments: Any) -> None:  # noqa: ANN401  # addresses, scalars
            results = arguments[inputs : len(self._stored)]
            # What stores over its inputs cannot run twice.
            if set(results) & set(arguments[:inputs]) or driver.is_capturing(stream):
                first(stream, *arguments)
                return

            def run_of(code: CudaCode) -> Run:
                course = self._course(code, known.extents, known.arrays)
                return self._bound(code.images, course, stream)

            def make(chosen: list[Ranked]) -> Run | None:
                code, _ = compiler.build(chosen, known)
                return None if code is None else run_of(code)

            with BUILDING:
                library = self._stored[0].library
                scratch = library.empty((cuda_tuning.DELAY_BYTES,), U8, self._device)
                place = library.memory(scratch).address
                with cuda_tuning.stopwatch(driver, number, stream, place, arguments) as time_of:
                    record = cuda_tuning.measure(name, choice, make, time_of)
                cuda_tuning.RECORDS.set(compiler.record_key(choice), record)
                run = run_of(compiler.find(known.extents, known.arrays))
                replace(run)
            run(stream, *arguments)

        return trial

    def _course(self, code: CudaCode, extents: Mapping[str, int], arrays: Arrays) -> Course:
        """Return what a call launches."""
        from redlang.runtime.cuda_plotting import plot  # noqa: PLC0415  (only for new code)

        compiler = self._backend.finder.compiler
        cuts, sms = compiler.segments(code, extents), compiler.device.sms
        return plot(code, self._stored, self._scalars, extents, arrays, cuts, sms)

    def _bound(self, images: tuple[Image, ...], course: Course, stream: int) -> Run:
        """Return the run of a course, and load its kernels if need be."""
        backend, library = self._backend, self._stored[0].library
        if images not in backend._loaded:
            backend.driver.require_no_capture(backend.number, stream, self._program.name)
            backend._loaded[images] = load(images, backend.driver, backend.number)
        launches = backend._loaded[images]
        counters = counters_of(backend.driver, library, backend.number)
        return bind(course, launches, backend.driver, library, self._device, counters)


def row_major(x: Stored, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the strides of a row-major array by axis."""
    found: list[tuple[str, int]] = []
    step = 1
    for dim in reversed(x.dims):
        found += reversed(_dim_strides(dim.axes, step, extents))
        whole = whole_name(dim)
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
