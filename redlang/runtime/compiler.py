"""From a normalised program to machine code: found in memory, on disk, or made.

What makes code (`runtime.planner`), and the prover that it is handed, load where nothing is found:
a process whose calls are all on disk never needs them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from redlang.ir.program import Program
from redlang.options import Options
from redlang.runtime.cache import BUILDING, digest, disk, keep, unpickled, versions
from redlang.runtime.call import UnitAxes
from redlang.runtime.compiled import Code, Found, Geometry, Made
from redlang.runtime.threads import thread_count
from redlang.runtime.tuning import TIMES, octaves
from redlang.targets import cpu
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.runtime.planner import Derived, Planner, Prove
    from redlang.schedule.choose import Choice
    from redlang.schedule.nests import Nest

logger = logging.getLogger("redlang.compile")


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


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the disk cache keeps of a call: the first of its kind needs no plan in later processes.

    Attributes:
        code: The key of its code.
        kind: The kind of its plan.
        geometry: What its extents make of the code.
    """

    code: str
    kind: str
    geometry: Geometry


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
    def planner(self) -> Planner:
        """What chooses plans and makes their code."""
        from redlang.runtime.planner import Planner  # noqa: PLC0415  (see above)

        return Planner(self.program, self.options, self.prove)

    @property
    def derived(self) -> Derived:
        """The sweeps of the program, with their proofs."""
        return self.planner.derived

    def nests(self, extents: Mapping[str, int]) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        """Return the program's nests in two forms; see `Planner.nests`."""
        return self.planner.nests(extents)

    def choice(self, extents: Mapping[str, int], unit: UnitAxes | None = None) -> Choice:
        """Return the plan for these extents: the fastest measured, else what the rules choose.

        Args:
            extents: Those of a call.
            unit: The axis along which each array has stride 1; left out, arrays are row-major.
        """
        tried = self.tried(extents, unit)
        return tried[0][0] if tried else self.planner.choose(extents, unit)

    def tried(
        self, extents: Mapping[str, int], unit: UnitAxes | None = None
    ) -> list[tuple[Choice, float]]:
        """Return the plans that were measured for these extents, fastest first, with seconds."""
        if not self.options.tune:
            return []
        ruled = self.planner.choose(extents, unit)
        times = TIMES.get(self._tuning_key(ruled, extents))
        plans = self.planner.near(ruled)
        if times is None or len(times) != len(plans):
            return []
        return sorted(zip(plans, times, strict=True), key=lambda pair: pair[1])

    def candidates(self, extents: Mapping[str, int], unit: UnitAxes) -> tuple[Found, ...]:
        """Return code for each plan that is to be measured; none if nothing is."""
        if not self.options.tune or self.tried(extents, unit):
            return ()
        plans = self.planner.near(self.planner.choose(extents, unit))
        return tuple(self._found(plan, extents, unit) for plan in plans)

    def settle(self, extents: Mapping[str, int], unit: UnitAxes, times: tuple[float, ...]) -> None:
        """Note what the plans of `candidates` took."""
        TIMES.set(self._tuning_key(self.planner.choose(extents, unit), extents), times)

    def _tuning_key(self, ruled: Choice, extents: Mapping[str, int]) -> str:
        parts = (repr(self.program), self.options.fuse, repr(ruled.plan), repr(octaves(extents)))
        return digest("times", *parts, str(thread_count()), *versions(), *cpu.fingerprint())

    def find(self, extents: Mapping[str, int], unit: UnitAxes) -> Found:
        """Return machine code for these extents and this layout.

        A new length whose code is there waits for nobody else's compilation.
        """
        if "planner" in self.__dict__ or self.options.tune:
            return self._found(self.choice(extents, unit), extents, unit)
        with BUILDING:
            store = disk()
            key = self._key("cpu call", repr(sorted(extents.items())), repr(sorted(unit.items())))
            recalled = unpickled(store, key, Recalled)
            if recalled is not None:
                code = self._linked(recalled.code, self._words(extents, recalled.kind))
                if code is not None:
                    return Found(code, recalled.geometry)
            choice = self.choice(extents, unit)
            found = self._found(choice, extents, unit)
            kind = choice.plan.nests[0].kind
            kept = Recalled(self._code_key(choice, unit), kind, found.geometry)
            keep(store, key, kept)
            return found

    def _found(self, choice: Choice, extents: Mapping[str, int], unit: UnitAxes) -> Found:
        place = (choice.plan, tuple(unit.items()))
        if place not in self._codes:
            with BUILDING:
                if place not in self._codes:
                    key = self._code_key(choice, unit)
                    what = self._words(extents, choice.plan.nests[0].kind)
                    known = self._linked(key, what)
                    self._codes[place] = known or self._made(key, what, choice, unit)
        code = self._codes[place]
        return Found(code, self.planner.geometry(choice, code.details, extents))

    def _key(self, what: str, *parts: str) -> str:
        own = (repr(self.program), self.options.fuse, *parts)
        return digest(what, *own, *versions(), *cpu.fingerprint())

    def _code_key(self, choice: Choice, unit: UnitAxes) -> str:
        return self._key("cpu code", repr(choice.plan), repr(sorted(unit.items())))

    def _words(self, extents: Mapping[str, int], kind: str) -> str:
        sizes = ", ".join(f"{axis}={extent}" for axis, extent in extents.items())
        return f"{self.program.name} for {sizes}; {kind}"

    def _linked(self, key: str, what: str) -> Code | None:
        """Return code from memory or from disk."""
        if key not in _CODES:
            start = time.perf_counter()
            made = unpickled(disk(), key, Made)
            if made is None:
                return None
            _CODES[key] = Code(made)
            self.history.note(what, start, compiled=False)
        return _CODES[key]

    def _made(self, key: str, what: str, choice: Choice, unit: UnitAxes) -> Code:
        """Return new code."""
        start = time.perf_counter()
        made = self.planner.make(choice, unit)
        keep(disk(), key, made)
        _CODES[key] = Code(made)
        self.history.note(what, start, compiled=True)
        return _CODES[key]


_CODES: dict[str, Code] = {}
"""Machine code of this process, by what it was made from."""
