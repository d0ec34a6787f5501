"""What is made where the disk cache has nothing: sweeps, plans, loops, machine code for the CPU.

A process whose kernels are all on disk never loads this module, nor what it imports.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeAlias

from redlang.codegen.arguments import Extent, Stride, Whole, scratch_bytes, unit_count
from redlang.codegen.cpu import emit
from redlang.ir.incremental import Sweep
from redlang.ir.loops import Loops
from redlang.ir.program import Program
from redlang.options import Fuse, Options
from redlang.runtime.cache import BUILDING, digest, disk, keep, unpickled, versions
from redlang.runtime.call import UnitAxes
from redlang.runtime.compiled import Details, Geometry, Made
from redlang.runtime.work import minimum_units
from redlang.schedule.alternatives import alternatives
from redlang.schedule.choose import Choice, choose_plan, segment_count
from redlang.schedule.classes import has_classes
from redlang.schedule.facts import SHORT
from redlang.schedule.joined_places import with_joined_places
from redlang.schedule.lower import lower
from redlang.schedule.merged import is_adjacent, merged, merged_across
from redlang.schedule.moments import with_moments
from redlang.schedule.nests import Nest, find_nests, wide_axes
from redlang.schedule.own_axes import with_own_axes
from redlang.schedule.own_conditions import with_own_conditions
from redlang.schedule.own_copies import with_own_copies
from redlang.schedule.plan import segment_axis
from redlang.schedule.relaid import relaid
from redlang.schedule.staging import Staging, joined, staged
from redlang.schedule.views import all_extents, all_strides
from redlang.targets import cpu
from redlang.targets.cpu_registers import product_bytes

if TYPE_CHECKING:
    from redlang.algebra.verdicts import StageVerdict


WAYS = {
    "operands": {"every": False},
    "all operands": {"every": True},
    "products": {"every": True, "chained": True},
    "integers": {"every": True, "integers": True},
}
"""Which operands are stored, as options of `staged`: those that registers cannot hold, all that are
no arrays, among them what products left that a sweep reads, and all but integers, which are
multiplied as such."""
ROOM = 2
"""How much faster what takes room in memory must be than what is computed where it is read."""


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

    def __init__(self, program: Program, options: Options, prove: Prove) -> None:
        """Plan `program`, whose sweeps `prove` finds."""
        self.program = program
        self.fuse = options.fuse
        self.rounded = options.contract != "f32"
        self.prove = prove
        self._nests: dict[object, tuple[tuple[Nest, ...], tuple[Nest, ...]]] = {}
        self._forms: dict[object, tuple[Form, ...]] = {}

    @functools.cached_property
    def derived(self) -> Derived:
        """The sweeps of the program, with their proofs."""
        return derive(self.program, self.fuse, self.prove)

    def nests(self, extents: Mapping[str, int]) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        """Return the nests with incremental sweeps, and with one sweep a dependent stage.

        Args:
            extents: Those of a call.
        """
        wide = wide_axes(extents)
        if wide not in self._nests:
            with BUILDING:
                self._nests[wide] = self._find_nests(self.program, wide)
        return self._nests[wide]

    def _find_nests(
        self,
        program: Program,
        wide: frozenset[str],
        nested: frozenset[str] | None = None,
        *,
        outside: bool = False,
        narrow: bool = False,
    ) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
        find = functools.partial(
            find_nests, wide=wide, outside=outside, nested=nested, narrow=narrow
        )
        derived = derive(program, self.fuse, self.prove)
        together = find(derived.program, derived.sweeps)
        apart = derive(program, "never", self.prove)
        if apart.program != derived.program:
            return together, ()
        return together, find(apart.program, apart.sweeps)

    @functools.cached_property
    def ways(self) -> dict[str, Way]:
        """What may stand for the program on a device with matrix units, by name."""
        own = with_own_copies(with_own_axes(self.program))
        program = with_own_conditions(with_joined_places(own))
        found = {"": Way((), merged(program))}
        whole, pairs = merged_across(found[""].rest)
        if pairs:
            found["whole"] = Way((), whole, adjacent=pairs)
        if program != own and has_classes(own):
            # Each element in a state of its class, and not in products with all classes.
            found["classes"] = Way((), merged(own))
        ways = [(name, program, options) for name, options in WAYS.items()]
        moments = with_moments(program) if self.rounded else program
        if moments != program:
            ways.append(("moments", moments, WAYS["operands"]))
        for name, text, options in ways:
            staging = staged(text, rounded=self.rounded, **options)
            if staging is not None:
                first = (staging.first,) if staging.first.results else ()
                way = Way(first, merged(staging.rest), staging.depths)
                if way not in found.values():
                    found[name] = way
        turned = relaid(program)
        if turned is not None:
            found["turned"] = self._turned(turned)
        return found

    def _turned(self, turned: Staging) -> Way:
        """Return the way in which a product's results are turned, and its operands stored."""
        before = len(turned.rest.results)
        options = WAYS["all operands"]
        staging = staged(turned.first, rounded=self.rounded, results=before, **options)
        if staging is None:
            return Way((merged(turned.first),), turned.rest)
        first = (staging.first, merged(staging.rest))
        return Way(first, turned.rest, staging.depths)

    def forms(
        self, extents: Mapping[str, int], strides: Mapping[str, Mapping[str, int]] | None = None
    ) -> tuple[Form, ...]:
        """Return the ways to compute the program on a device with matrix units.

        Args:
            extents: Those of a call.
            strides: Those of its arrays, by array and axis; left out, arrays are row-major.
        """
        found: list[Form] = []
        for name, way in self._fitting(extents, strides):
            if any(prod(extents[axis] for axis in axes) > most for axes, most in way.depths):
                continue
            every = all_extents(way.rest, extents)
            # Only what a thread can hold is swept inside another sweep.
            nested = frozenset(axis for axis, extent in every.items() if extent <= SHORT)
            axes = wide_axes(every), nested
            if (name, axes) not in self._forms:
                with BUILDING:
                    self._forms[name, axes] = tuple(self._find_forms(name, way, axes))
            forms = self._forms[name, axes]
            if name == "products" and not any(nest.exports for nest in found[0].nests):
                # Nothing but operands would lie in memory.
                forms = tuple(replace(form, weight=max(ROOM, form.weight)) for form in forms)
            found += forms
        return tuple(found)

    def _fitting(
        self, extents: Mapping[str, int], strides: Mapping[str, Mapping[str, int]] | None
    ) -> list[tuple[str, Way]]:
        """Return the ways that are right for a call; what has fewer axes replaces the plain way."""
        ways = list(self.ways.items())
        whole = self.ways.get("whole")
        if whole is None:
            return ways
        program = self.ways[""].rest
        every = all_extents(program, extents)
        known = {} if strides is None else all_strides(program, strides, every)
        fits = all(is_adjacent(*pair, known, every) for pair in whole.adjacent)
        return [(name, way) for name, way in ways if name != ("" if fits else "whole")]

    def _find_forms(
        self,
        name: str,
        way: Way,
        axes: tuple[frozenset[str], frozenset[str]],
    ) -> Iterator[Form]:
        first, rest = way.first, way.rest
        before = tuple(self._find_nests(program, *axes) for program in first)
        inside = self._find_nests(rest, *axes)
        yield self._form(name, 1, first, rest, inside, before)
        narrow = self._find_nests(rest, *axes, narrow=True)
        if narrow != inside:
            yield self._form(f"{name} narrow", 1, first, rest, narrow, before)
        outside = self._find_nests(rest, *axes, outside=True)
        if outside != inside:
            yield self._form(f"{name} outside", ROOM, first, rest, outside, before)

    def _form(
        self,
        name: str,
        weight: float,
        first: tuple[Program, ...],
        rest: Program,
        nests: tuple[tuple[Nest, ...], tuple[Nest, ...]],
        before: tuple[tuple[tuple[Nest, ...], tuple[Nest, ...]], ...],
    ) -> Form:
        """Return a program's form; each of `first` stores what is read later, by nests `before`."""
        whole = derive(rest, self.fuse, self.prove).program
        together, apart = nests
        for program, forms in zip(reversed(first), reversed(before), strict=True):
            count = len(whole.results)
            one, other = (
                tuple(replace(n, results=tuple(r + count for r in n.results)) for n in form)
                for form in forms
            )
            together, apart = one + together, other + apart
            whole = joined(derive(program, self.fuse, self.prove).program, whole)
        stored = sum(len(forms[0]) for forms in before[:1])
        return Form(name, whole, together, apart, weight, stored)

    def choose(self, extents: Mapping[str, int], unit: UnitAxes | None = None) -> Choice:
        """Return the plan that the rules choose for these extents and this layout."""
        return choose_plan(self.derived.program, *self.nests(extents), extents, unit)

    @staticmethod
    def near(choice: Choice) -> tuple[Choice, ...]:
        """Return a plan, then those like it with other tiles."""
        return alternatives(choice)

    def loops(self, choice: Choice) -> Loops:
        """Return the loops of a plan."""
        return lower(self.derived.program, choice.nests, choice.plan)

    def make(self, choice: Choice, unit: UnitAxes) -> Made:
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
class Way:
    """A program in parts, before its sweeps are found.

    Attributes:
        first: What stores operands of products, and what stores results that the rest turns.
        rest: What the rest is then.
        depths: Axes, and the largest product of their extents that it is right for.
        adjacent: Neighbours that must be without gaps between them in each array.
    """

    first: tuple[Program, ...]
    rest: Program
    depths: tuple[tuple[tuple[str, ...], int], ...] = ()
    adjacent: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """A way to compute a program: what goes to memory between its kernels.

    Attributes:
        name: What tells it from the program's others.
        program: The program; it may store operands of products first and then read them.
        nests: Its nests with incremental sweeps.
        apart: Those with one sweep a dependent stage.
        weight: How much faster it must be than others, for the room that it takes.
        before: How many of the nests store operands.
    """

    name: str
    program: Program
    nests: tuple[Nest, ...]
    apart: tuple[Nest, ...]
    weight: float
    before: int = 0


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
