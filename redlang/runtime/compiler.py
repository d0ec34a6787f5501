"""From a normalised program to machine code: plans by extents, code by plan, kept on disk.

The prover is handed in rather than imported, so that a process whose kernels are all on disk
never loads it.
"""

from __future__ import annotations

import functools
import logging
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from redlang.codegen.cpu import KernelText, emit
from redlang.ir.incremental import Sweep
from redlang.ir.loops import Loops
from redlang.ir.program import Program
from redlang.options import Fuse, Options
from redlang.runtime.cache import BUILDING, DiskCache, digest, disk
from redlang.runtime.compiled import Code, Found
from redlang.runtime.threads import thread_count
from redlang.runtime.tuning import TIMES, octaves
from redlang.schedule.alternatives import alternatives
from redlang.schedule.choose import Choice, choose_plan, segment_count
from redlang.schedule.lower import lower
from redlang.schedule.nests import Nest, find_nests
from redlang.schedule.plan import segment_axis
from redlang.targets import cpu
from redlang.targets.cpu import ObjectCode
from redlang.targets.cpu_registers import product_bytes

if TYPE_CHECKING:
    from redlang.algebra.verdicts import StageVerdict

Kept = TypeVar("Kept")

logger = logging.getLogger("redlang.compile")


class Sweeps(Protocol):
    """What the prover returns: see `Derived`."""

    @property
    def program(self) -> Program:
        """The program that the sweeps belong to."""

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Its incremental form."""

    @property
    def verdicts(self) -> tuple[StageVerdict, ...]:
        """One verdict for each stage."""


Prove: TypeAlias = Callable[[Program, Fuse], Sweeps]
"""Finds the sweeps of a normalised program."""


class History:
    """What has been compiled for one kernel."""

    def __init__(self) -> None:
        self._compiled = 0
        self._loaded = 0
        self._events: list[str] = []

    def note(self, what: str, since: float, *, compiled: bool) -> None:
        """Record a compilation, or a load from disk, that began at `since`."""
        self._compiled += compiled
        self._loaded += not compiled
        verb = "compiled" if compiled else "loaded"
        event = f"{verb} in {1e3 * (time.perf_counter() - since):.0f} ms: {what}"
        self._events.append(event)
        logger.info(event)

    def summary(self) -> tuple[int, int, tuple[str, ...]]:
        """Return compilations, loads and their descriptions."""
        return self._compiled, self._loaded, tuple(self._events)


class Compiler:
    """Everything between a normalised program and machine code for the CPU.

    Plans depend on extents, code on plans; whoever has the same program, plan and layout shares it.
    """

    def __init__(self, program: Program, options: Options, history: History, prove: Prove) -> None:
        """Compile `program`; `prove` finds its sweeps, `history` notes what was made."""
        self.program = program
        self.options = options
        self.history = history
        self.prove = prove
        self._codes: dict[object, Code] = {}

    @functools.cached_property
    def derived(self) -> Derived:
        """The sweeps of the program, with their proofs."""
        return derive(self.program, self.options.fuse, self.prove)

    @functools.cached_property
    def nests(self) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        """The program's nests with incremental sweeps, and with one sweep a dependent stage."""
        together = find_nests(self.derived.program, self.derived.sweeps)
        apart = derive(self.program, "never", self.prove)
        if apart.program != self.derived.program:
            return together, ()
        return together, find_nests(apart.program, apart.sweeps)

    def choice(self, extents: Mapping[str, int]) -> Choice:
        """Return the plan for these extents: the fastest measured, else what the rules choose."""
        tried = self.tried(extents)
        return tried[0][0] if tried else self.ruled(extents)

    def ruled(self, extents: Mapping[str, int]) -> Choice:
        """Return the plan that the rules choose."""
        if "nests" not in self.__dict__:
            with BUILDING:
                return choose_plan(self.derived.program, *self.nests, extents)
        return choose_plan(self.derived.program, *self.nests, extents)

    def tried(self, extents: Mapping[str, int]) -> list[tuple[Choice, float]]:
        """Return the plans that were measured for these extents, fastest first, with seconds."""
        if not self.options.tune:
            return []
        ruled = self.ruled(extents)
        times = TIMES.get(self._tuning_key(ruled, extents))
        plans = alternatives(ruled)
        if times is None or len(times) != len(plans):
            return []
        return sorted(zip(plans, times, strict=True), key=lambda pair: pair[1])

    def candidates(
        self, extents: Mapping[str, int], unit: Mapping[str, str | None]
    ) -> tuple[Found, ...]:
        """Return code for each plan that is to be measured; none if nothing is."""
        if not self.options.tune or self.tried(extents):
            return ()
        plans = alternatives(self.ruled(extents))
        return tuple(self._found(plan, extents, unit) for plan in plans)

    def settle(self, extents: Mapping[str, int], times: tuple[float, ...]) -> None:
        """Note what the plans of `candidates` took."""
        TIMES.set(self._tuning_key(self.ruled(extents), extents), times)

    def _tuning_key(self, ruled: Choice, extents: Mapping[str, int]) -> str:
        parts = (repr(self.program), self.options.fuse, repr(ruled.plan), repr(octaves(extents)))
        return digest("times", *parts, str(thread_count()), *versions(), *cpu.fingerprint())

    def loops(self, choice: Choice) -> Loops:
        """Return the loops of a plan."""
        return lower(self.derived.program, choice.nests, choice.plan)

    @staticmethod
    def segments(choice: Choice, extents: Mapping[str, int]) -> dict[str, int]:
        """Return into how many segments each cut axis goes, by the axis that numbers them."""
        return {
            segment_axis(nest.segmented): segment_count(nest, extents)
            for nest in choice.plan.nests
            if nest.segmented is not None
        }

    def find(self, extents: Mapping[str, int], unit: Mapping[str, str | None]) -> Found:
        """Return machine code for these extents and this layout.

        A new length whose code is there waits for nobody else's compilation.
        """
        return self._found(self.choice(extents), extents, unit)

    def _found(
        self, choice: Choice, extents: Mapping[str, int], unit: Mapping[str, str | None]
    ) -> Found:
        segments = self.segments(choice, extents)
        key = (choice.plan, tuple(unit.items()))
        if key not in self._codes:
            with BUILDING:
                if key not in self._codes:
                    self._codes[key] = self._code(choice, unit, extents)
        return Found(self._codes[key], segments)

    def _code(
        self, choice: Choice, unit: Mapping[str, str | None], extents: Mapping[str, int]
    ) -> Code:
        """Return code from memory, from disk, or made."""
        start = time.perf_counter()
        layout = repr(sorted(unit.items()))
        parts = (repr(self.program), self.options.fuse, repr(choice.plan), layout)
        key = digest("cpu code", *parts, *versions(), *cpu.fingerprint())
        if key in _CODES:
            return _CODES[key]
        sizes = ", ".join(f"{axis}={extent}" for axis, extent in extents.items())
        what = f"{self.program.name} for {sizes}; {choice.plan.nests[0].kind}"
        store = disk()
        made = unpickled(store, key, Made)
        compiled = made is None
        if made is None:
            made = self._make(self.loops(choice), unit)
            store.store(key, pickle.dumps(made))
        _CODES[key] = loaded(made)
        self.history.note(what, start, compiled=compiled)
        return _CODES[key]

    def _make(self, loops: Loops, unit: Mapping[str, str | None]) -> Made:
        text = emit(loops, unit)
        built = cpu.build(text.text, text.entries, label=self.program.name)
        product = product_bytes() if any(text.products) else 0
        return Made(loops, text, tuple(product * needed for needed in text.products), built)


_CODES: dict[str, Code] = {}
"""Machine code of this process, by what it was made from."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the disk cache keeps of compiled code."""

    loops: Loops
    text: KernelText
    fixed: tuple[int, ...]
    built: ObjectCode


def loaded(made: Made) -> Code:
    """Return code linked into this process."""
    module = cpu.load(made.built)
    return Code(
        made.loops,
        made.text.arguments,
        tuple(module.functions[entry] for entry in made.text.entries),
        made.text.buffers,
        made.fixed,
        made.text.text,
        module,
    )


@dataclass(frozen=True, slots=True)
class Derived:
    """What the algebra found, as `algebra.fuse.Fusion` holds it.

    Attributes:
        program: The program that the sweeps belong to.
        sweeps: Its incremental form.
        packed: The verdicts, pickled: they belong to the prover, which a call need not load.
    """

    program: Program
    sweeps: tuple[Sweep, ...]
    packed: bytes = field(repr=False)

    @property
    def verdicts(self) -> tuple[StageVerdict, ...]:
        """One verdict for each stage."""
        verdicts: tuple[StageVerdict, ...] = pickle.loads(self.packed)
        return verdicts


_DERIVED: dict[str, Derived] = {}
"""Derivations of this process, by program and mode."""


def derive(program: Program, fuse: Fuse, prove: Prove) -> Derived:
    """Return the sweeps of a normalised program, from memory, from disk, or derived.

    Raises:
        FusionError: `fuse` is `require` and a stage needs a sweep of its own.
    """
    key = digest("derivation", repr(program), fuse, *versions())
    if key not in _DERIVED:
        store = disk()
        found = unpickled(store, key, Derived)
        if found is None:
            fusion = prove(program, fuse)
            found = Derived(fusion.program, fusion.sweeps, pickle.dumps(fusion.verdicts))
            store.store(key, pickle.dumps(found))
        _DERIVED[key] = found
    return _DERIVED[key]


def unpickled(store: DiskCache, key: str, kind: type[Kept]) -> Kept | None:
    """Return an entry of the disk cache; None if there is none that can be read."""
    payload = store.load(key)
    if payload is None:
        return None
    try:
        value = pickle.loads(payload)
    except Exception as error:
        logger.warning("dropped a cache entry that cannot be read: %s", error)
        value = None
    if isinstance(value, kind):
        return value
    store.drop(key)
    return None


@functools.cache
def versions() -> tuple[str, ...]:
    """Return what derivations and generated text depend on besides their input."""
    folder = Path(__file__).parent.parent
    status = [(path.stat(), path) for path in sorted(folder.rglob("*.py"))]
    files = (f"{p.relative_to(folder)} {s.st_size} {s.st_mtime_ns}" for s, p in status)
    packages = (f"{name} {version(name)}" for name in ("numpy", "sympy", "numba", "llvmlite"))
    return (sys.version, *packages, *files)
