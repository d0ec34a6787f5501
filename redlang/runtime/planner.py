"""What is made where the disk cache has nothing: sweeps, plans, loops, machine code for the CPU.

A process whose kernels are all on disk never loads this module, nor what it imports.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeAlias

from redlang.codegen.arguments import Extent, Stride, Whole, scratch_bytes, unit_count
from redlang.codegen.cpu import emit
from redlang.ir.incremental import Sweep
from redlang.ir.loops import Loops
from redlang.ir.program import Program
from redlang.options import Fuse
from redlang.runtime.cache import BUILDING, digest, disk, keep, unpickled, versions
from redlang.runtime.compiled import Details, Geometry, Made
from redlang.runtime.work import minimum_units
from redlang.schedule.alternatives import alternatives
from redlang.schedule.choose import Choice, choose_plan, segment_count
from redlang.schedule.lower import lower
from redlang.schedule.nests import Nest, find_nests, wide_axes
from redlang.schedule.plan import segment_axis
from redlang.targets import cpu
from redlang.targets.cpu_registers import product_bytes

if TYPE_CHECKING:
    from redlang.algebra.verdicts import StageVerdict


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


class Planner:
    """The plans of one normalised program, and the machine code of each."""

    def __init__(self, program: Program, fuse: Fuse, prove: Prove) -> None:
        """Plan `program`, whose sweeps `prove` finds."""
        self.program = program
        self.fuse = fuse
        self.prove = prove
        self._nests: dict[object, tuple[tuple[Nest, ...], tuple[Nest, ...]]] = {}

    @functools.cached_property
    def derived(self) -> Derived:
        """The sweeps of the program, with their proofs."""
        return derive(self.program, self.fuse, self.prove)

    def nests(
        self,
        extents: Mapping[str, int],
        *,
        outside: bool = False,
        nested: frozenset[str] | None = None,
    ) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        """Return the nests with incremental sweeps, and with one sweep a dependent stage.

        Args:
            extents: Those of a call.
            outside: Whether what spreads goes to memory, wherever it is read.
            nested: Axes that may be swept inside another sweep; None for all.
        """
        key = wide_axes(extents), outside, nested
        if key not in self._nests:
            with BUILDING:
                self._nests[key] = self._find_nests(*key)
        return self._nests[key]

    def _find_nests(
        self, wide: frozenset[str], outside: bool, nested: frozenset[str] | None
    ) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        find = functools.partial(find_nests, wide=wide, outside=outside, nested=nested)
        derived = self.derived
        together = find(derived.program, derived.sweeps)
        apart = derive(self.program, "never", self.prove)
        if apart.program != derived.program:
            return together, ()
        return together, find(apart.program, apart.sweeps)

    def choose(self, extents: Mapping[str, int]) -> Choice:
        """Return the plan that the rules choose for these extents."""
        return choose_plan(self.derived.program, *self.nests(extents), extents)

    @staticmethod
    def near(choice: Choice) -> tuple[Choice, ...]:
        """Return a plan, then those like it with other tiles."""
        return alternatives(choice)

    def loops(self, choice: Choice) -> Loops:
        """Return the loops of a plan."""
        return lower(self.derived.program, choice.nests, choice.plan)

    def make(self, choice: Choice, unit: Mapping[str, str | None]) -> Made:
        """Return machine code of a plan for a layout."""
        loops = self.loops(choice)
        text = emit(loops, unit)
        built = cpu.build(text.text, text.entries, label=self.program.name)
        product = product_bytes() if any(text.products) else 0
        fixed = tuple(product * needed for needed in text.products)
        lists = text.arguments.addresses, text.arguments.ints, text.arguments.floats
        details = Details(loops, text.arguments, text.buffers, fixed)
        return Made(built, tuple(map(len, lists)), pickle.dumps(details))

    @staticmethod
    def segments(choice: Choice, extents: Mapping[str, int]) -> dict[str, int]:
        """Return into how many segments each cut axis goes, by the axis that numbers them."""
        return {
            segment_axis(nest.segmented): segment_count(nest, extents)
            for nest in choice.plan.nests
            if nest.segmented is not None
        }

    def geometry(self, choice: Choice, details: Details, extents: Mapping[str, int]) -> Geometry:
        """Return what these extents make of the code of a plan."""
        every = {**extents, **self.segments(choice, extents)}
        loops, arguments = details.loops, details.arguments
        steps = tuple(
            (
                unit_count(kernel, every),
                minimum_units(kernel, every),
                scratch_bytes(buffers, fixed, every),
            )
            for kernel, buffers, fixed in zip(
                loops.kernels, details.buffers, details.fixed, strict=True
            )
        )
        spaces = tuple(
            prod(every[axis] for axis in space.axes) * space.dtype.bytes
            for space in loops.workspaces
        )
        kinds = [(Extent, Stride, Whole).index(type(item)) for item in arguments.ints]
        assert kinds == sorted(kinds), "a launcher passes extents, then strides, then whole numbers"
        head = tuple(every[item.axis] for item in arguments.ints if isinstance(item, Extent))
        return Geometry(steps, spaces, head)


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
    key = digest("derivation", repr(program), repr(program.places), fuse, *versions())
    if key not in _DERIVED:
        store = disk()
        found = unpickled(store, key, Derived)
        if found is None:
            fusion = prove(program, fuse)
            found = Derived(fusion.program, fusion.sweeps, pickle.dumps(fusion.verdicts))
            keep(store, key, found)
        _DERIVED[key] = found
    return _DERIVED[key]
